use std::fs;

use super::*;

fn env(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    let home = [("HOME", "/home/somebody")];
    home.iter().chain(pairs).map(|(n, v)| (OsString::from(n), OsString::from(v))).collect()
}

fn from_env(pairs: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
    load(None, env(pairs), &[])
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    fs::write(&path, text).unwrap();
    (dir, path)
}

#[test]
fn every_default_is_allowed_by_its_own_setting() {
    // That of `state_dir` is made from the environment.
    for setting in SETTINGS.iter().filter(|s| s.key != "state_dir") {
        let mut config = Config::default();
        let raw = Raw::One(setting.default.to_owned());
        assert_eq!((setting.set)(&mut config, &raw), Ok(()), "{}", setting.key);
    }
}

#[test]
fn every_setting_is_named_once_and_after_one_rule() {
    for (index, setting) in SETTINGS.iter().enumerate() {
        let expected = match setting.key {
            "state_dir" => "MOBILE_STATE_DIR".to_owned(),
            key => format!("MOBILE_{}", key.to_uppercase()),
        };
        assert_eq!(setting.env, expected);
        assert!(SETTINGS.iter().skip(index + 1).all(|s| s.key != setting.key), "{}", setting.key);
        for both in [setting.meaning, setting.allowed] {
            for text in [both.en, both.ru] {
                assert!(!text.is_empty() && !text.contains('\n'), "{}", setting.key);
            }
        }
    }
}

#[test]
fn the_defaults_are_those_of_the_protocol() {
    let config = from_env(&[]).unwrap().config;
    assert_eq!((config.host.as_str(), config.port), ("127.0.0.1", 8787));
    assert_eq!(config.state_dir, Path::new("/home/somebody/.local/state/hermes-mobile"));
    assert_eq!(config.agent, AgentChoice::Demo);
    assert_eq!(config.lang, Lang::Ru);
    assert!(config.deliver_loopback && config.rate_limits);
    use protocol::limits;
    assert_eq!(config.chunk_limit, limits::CHUNK_CHARS);
    assert_eq!(config.hello_timeout_ms, limits::HELLO_MS);
    assert_eq!(config.series_idle_ms, limits::SERIES_IDLE_MS);
    assert_eq!(config.wait_ms, limits::WAIT_MS);
    assert_eq!(config.take_ms, limits::TAKE_MS);
    assert_eq!(config.deliver_ms, limits::DELIVER_MS);
    assert_eq!((config.ping_interval_ms, config.silent_after_ms), (25_000, 75_000));
    assert_eq!((config.idle_after_ms, config.write_timeout_ms), (1_500, 15_000));
}

#[test]
fn the_later_layer_wins() {
    let (_dir, path) = file("port = 1001\nchunk_limit = 1002\nlang = \"en\"\nrate_limits = false\n");
    let environment = env(&[("MOBILE_PORT", "2001"), ("MOBILE_CHUNK_LIMIT", "2002")]);
    let loaded = load(Some(&path), environment, &[("port", "3001".to_owned())]).unwrap();
    let config = loaded.config;
    assert_eq!((config.port, config.chunk_limit, config.lang), (3001, 2002, Lang::En));
    assert!(!config.rate_limits);
    assert_eq!(loaded.warnings, []);
}

#[test]
fn the_file_may_be_named_by_a_variable_and_state_by_xdg() {
    let (_dir, path) = file("port = 1001\n");
    let environment = env(&[("MOBILE_CONFIG", path.to_str().unwrap()), ("XDG_STATE_HOME", "/var/x")]);
    let config = load(None, environment, &[]).unwrap().config;
    assert_eq!(config.port, 1001);
    assert_eq!(config.state_dir, Path::new("/var/x/hermes-mobile"));
    let relative = from_env(&[("XDG_STATE_HOME", "x")]).unwrap().config;
    assert_eq!(relative.state_dir, Path::new("/home/somebody/.local/state/hermes-mobile"));
    let nowhere = load(None, Vec::new(), &[]).unwrap_err().to_string();
    assert!(nowhere.contains("--state"), "{nowhere}");
}

#[test]
fn unknown_keys_and_variables_warn_and_do_not_stop() {
    let (_dir, path) = file("prot = 1\n[section]\nx = 1\n");
    let loaded = load(Some(&path), env(&[("MOBILE_PROT", "1"), ("OTHER", "1")]), &[]).unwrap();
    let all: Vec<&str> = loaded.warnings.iter().map(|w| w.en.as_str()).collect();
    let all = all.join("\n");
    assert_eq!(loaded.warnings.len(), 3, "{all}");
    assert!(all.contains("the key prot") && all.contains("the key section"), "{all}");
    assert!(all.contains("MOBILE_PROT") && !all.contains("OTHER"), "{all}");
}

#[test]
fn a_wrong_value_stops_the_start_and_names_everything() {
    for (name, value) in [
        ("MOBILE_PORT", "70000"),
        ("MOBILE_PORT", "-1"),
        ("MOBILE_PORT", "http"),
        ("MOBILE_AGENT", "hermes"),
        ("MOBILE_LANG", "de"),
        ("MOBILE_RATE_LIMITS", "maybe"),
        ("MOBILE_CHUNK_LIMIT", "0"),
        ("MOBILE_DRAIN_MS", "1.5"),
        ("MOBILE_HOME_DEVICE", "../x"),
        ("MOBILE_TRUSTED_PROXIES", "10.0.0.0/99"),
    ] {
        let error = from_env(&[(name, value)]).unwrap_err();
        let setting = SETTINGS.iter().find(|s| s.env == name).unwrap();
        for lang in [Lang::En, Lang::Ru] {
            let text = error.text(lang);
            let allowed = setting.allowed.text(lang);
            assert!(text.contains(name) && text.contains(value) && text.contains(allowed), "{text}");
        }
    }
    let (_dir, path) = file("port = [1]\n");
    let text = load(Some(&path), env(&[]), &[]).unwrap_err().to_string();
    assert!(text.contains("config.toml: port") && text.contains("0 to 65535"), "{text}");
    let (_dir, path) = file("port = {}\n");
    assert!(load(Some(&path), env(&[]), &[]).unwrap_err().to_string().contains("port"));
    let (_dir, path) = file("port = \n");
    assert!(load(Some(&path), env(&[]), &[]).unwrap_err().to_string().contains("not valid TOML"));
    let text = load(Some(Path::new("/nonexistent/x.toml")), env(&[]), &[]).unwrap_err().to_string();
    assert!(text.contains("/nonexistent/x.toml") && text.contains("--config"), "{text}");
    let flag = load(None, env(&[]), &[("port", "x".to_owned())]).unwrap_err().to_string();
    assert!(flag.contains("--port"), "{flag}");
}

#[test]
fn extra_tokens_split_at_the_first_equals_sign() {
    let config = from_env(&[("MOBILE_EXTRA_TOKENS", "qa-1=abc=def, anna@home = tok2 ,")]).unwrap().config;
    let all: Vec<(&str, &str)> = config.extra_tokens.iter().map(|(d, t)| (d.as_str(), t.reveal())).collect();
    assert_eq!(all, [("qa-1", "abc=def"), ("anna@home", "tok2")]);
    let (_dir, path) = file("extra_tokens = [\"qa-1=a,b\"]\n");
    let listed = load(Some(&path), env(&[]), &[]).unwrap().config;
    assert_eq!(listed.extra_tokens.first().map(|(_, t)| t.reveal()), Some("a,b"));
}

#[test]
fn an_empty_half_stops_the_start_in_words_without_the_token() {
    for (value, why) in [
        ("=secrettoken", "no device"),
        ("qa-1=", "no token"),
        ("good=first1,secrettoken", "entry 2 has no ="),
        ("a b=secrettoken", "1 to 128 characters"),
    ] {
        let text = from_env(&[("MOBILE_EXTRA_TOKENS", value)]).unwrap_err().to_string();
        assert!(text.contains(why) && text.contains("MOBILE_EXTRA_TOKENS"), "{text}");
        assert!(!text.contains("secrettoken"), "{text}");
    }
}

#[test]
fn tokens_are_never_printed_and_never_mean_two_things() {
    let loaded =
        from_env(&[("MOBILE_TOKEN", "a-long-enough-secret"), ("MOBILE_DELIVER_TOKENS", "short")]).unwrap();
    let printed = format!("{:?} {:?}", loaded.config, loaded.warnings);
    assert!(!printed.contains("a-long-enough-secret"), "{printed}");
    assert_eq!(loaded.warnings.len(), 1, "the short one is warned about");
    let warning = &loaded.warnings[0];
    assert!(warning.en.contains("MOBILE_DELIVER_TOKENS") && warning.ru.contains("MOBILE_DELIVER_TOKENS"));
    assert!(!printed.contains("\"short\""));

    let twice = from_env(&[("MOBILE_TOKEN", "same-same-same"), ("MOBILE_EXTRA_TOKENS", "d=same-same-same")]);
    let text = twice.unwrap_err().to_string();
    assert!(text.contains("given twice") && !text.contains("same-same"), "{text}");
    let text = from_env(&[("MOBILE_TOKEN", "two words")]).unwrap_err().to_string();
    assert!(text.contains("MOBILE_TOKEN") && !text.contains("two words"), "{text}");
    // Whoever may read the metrics must not be able to speak for a device.
    let twice = from_env(&[("MOBILE_TOKEN", "same-same-same"), ("MOBILE_METRICS_TOKEN", "same-same-same")]);
    assert!(twice.unwrap_err().to_string().contains("MOBILE_METRICS_TOKEN"));
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let config =
        from_env(&[("MOBILE_PORT", ""), ("MOBILE_TOKEN", ""), ("MOBILE_EXTRA_TOKENS", "")]).unwrap().config;
    assert_eq!(config.port, 8787);
    assert!(config.token.is_none() && config.extra_tokens.is_empty());
}

#[test]
fn pings_must_come_before_silence_is_punished() {
    let wrong = from_env(&[("MOBILE_PING_INTERVAL_MS", "1000"), ("MOBILE_SILENT_AFTER_MS", "1000")]);
    let text = wrong.unwrap_err().to_string();
    assert!(text.contains("MOBILE_SILENT_AFTER_MS") && text.contains("MOBILE_PING_INTERVAL_MS"), "{text}");
}

#[test]
fn a_list_of_allowed_devices_that_names_nobody_stops_the_start() {
    for list in [",", " , ,"] {
        let error = from_env(&[("MOBILE_ALLOWED_DEVICES", list)]).unwrap_err().to_string();
        assert!(error.contains("MOBILE_ALLOWED_DEVICES"), "{error}");
    }
    let (_dir, path) = file("allowed_devices = [\"\"]\n");
    assert!(load(Some(&path), env(&[]), &[]).is_err(), "it would let everybody in");
    assert!(from_env(&[("MOBILE_ALLOWED_DEVICES", "a,,b")]).unwrap().config.allowed_devices == ["a", "b"]);
    assert!(from_env(&[("MOBILE_ALLOWED_DEVICES", "")]).unwrap().config.allowed_devices.is_empty());
}

#[test]
fn an_empty_state_directory_is_refused_in_words() {
    for flag in ["", "  "] {
        let text = load(None, env(&[]), &[("state_dir", flag.to_owned())]).unwrap_err().to_string();
        assert!(text.contains("--state") && text.contains("a directory that this user may create"), "{text}");
    }
    let (_dir, path) = file("state_dir = \"\"\n");
    assert!(load(Some(&path), env(&[]), &[]).unwrap_err().to_string().contains("state_dir"));
    assert!(from_env(&[("MOBILE_STATE_DIR", "")]).is_ok(), "an empty variable is not set");
}

#[test]
fn the_example_shows_every_setting_with_its_default_and_is_a_file_that_changes_nothing() {
    let plain = from_env(&[]).unwrap().config;
    for lang in [Lang::En, Lang::Ru] {
        let text = example(lang);
        let (_dir, path) = file(&text);
        let loaded = load(Some(&path), env(&[]), &[]).unwrap();
        assert!(loaded.values.iter().all(|v| v.source == Source::Default), "all lines are comments");
        // With its comment signs removed it says what holds anyway.
        let lines = text.lines().filter_map(|line| line.strip_prefix('#'));
        let active: Vec<&str> = lines.filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(active.len(), SETTINGS.len());
        let (_dir, path) = file(&active.join("\n"));
        let loaded = load(Some(&path), env(&[]), &[]).unwrap();
        assert!(loaded.values.iter().all(|v| v.source == Source::File(path.clone())));
        assert_eq!(loaded.warnings, []);
        let config = Config { state_dir: plain.state_dir.clone(), ..loaded.config };
        assert_eq!(format!("{config:?}"), format!("{plain:?}"));
        for setting in SETTINGS {
            assert!(text.contains(setting.meaning.text(lang)) && text.contains(setting.allowed.text(lang)));
        }
    }
}

#[test]
fn it_is_told_what_is_in_force_and_where_it_comes_from() {
    let (_dir, path) = file("port = 1001\nchunk_limit = 1002\nallowed_devices = [\"a\", \"b\"]\n");
    let environment = env(&[
        ("MOBILE_CHUNK_LIMIT", "2002"),
        ("MOBILE_TOKEN", "a-long-enough-secret"),
        ("MOBILE_EXTRA_TOKENS", "a=other-long-secret,b=third-long-secret"),
    ]);
    let loaded = load(Some(&path), environment, &[("agent", "echo".to_owned())]).unwrap();
    let value = |key: &str| {
        let value = loaded.values.iter().find(|v| v.setting.key == key).unwrap();
        (value.shown(), value.source.name())
    };
    assert_eq!(loaded.values.len(), SETTINGS.len());
    assert_eq!(value("port"), ("1001".to_owned(), "file"));
    assert_eq!(value("chunk_limit"), ("2002".to_owned(), "variable"));
    assert_eq!(value("agent"), ("echo".to_owned(), "flag"));
    assert_eq!(value("lang"), ("ru".to_owned(), "default"));
    assert_eq!(value("allowed_devices"), ("a,b".to_owned(), "file"));
    assert_eq!(value("state_dir"), ("/home/somebody/.local/state/hermes-mobile".to_owned(), "default"));
    assert_eq!(value("token"), ("***".to_owned(), "variable"));
    assert_eq!(value("extra_tokens"), ("***,***".to_owned(), "variable"));
    assert_eq!(value("deliver_tokens"), (String::new(), "default"));
    assert!(!format!("{:?}", loaded.values).contains("secret"));
}
