//! What was found, for a person, for a program, for a CI server.

use protocol::words::Lang;
use serde_json::{Value, json};

use crate::plan::{Done, Outcome, Report};

const fn say(lang: Lang, ru: &'static str, en: &'static str) -> &'static str {
    match lang {
        Lang::Ru => ru,
        Lang::En => en,
    }
}

/// How many passed, failed, were not run, are not offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The rule is kept.
    pub passed: usize,
    /// It is not.
    pub failed: usize,
    /// Not known.
    pub not_run: usize,
    /// Optional, and not there.
    pub not_offered: usize,
}

impl Report {
    /// The sums.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for done in &self.done {
            match done.outcome {
                Outcome::Passed => counts.passed += 1,
                Outcome::Failed(_) => counts.failed += 1,
                Outcome::NotRun(_) => counts.not_run += 1,
                Outcome::NotOffered(_) => counts.not_offered += 1,
            }
        }
        counts
    }

    /// For a person; the last line has a fixed form in either language. `all`: also what passed.
    #[must_use]
    pub fn text(&self, lang: Lang, all: bool) -> String {
        let mut out = String::new();
        for done in &self.done {
            done.text(lang, all, &mut out);
        }
        let counts = self.counts();
        if counts.not_offered > 0 {
            let what = say(lang, "не предлагается (необязательное)", "not offered (optional)");
            out.push_str(&format!("{what}: {}\n", counts.not_offered));
        }
        if counts.not_run > 0 {
            out.push_str(&format!("{}: {}\n", say(lang, "не проверено", "not run"), counts.not_run));
        }
        let time = say(lang, "время", "time");
        out.push_str(&format!("{time}: {:.1} s\n", self.time.as_secs_f64()));
        let skipped =
            if counts.not_run > 0 { format!(", {} skipped", counts.not_run) } else { String::new() };
        out.push_str(&format!("{} passed, {} failed{skipped}\n", counts.passed, counts.failed));
        out
    }

    /// For a program.
    #[must_use]
    pub fn json(&self, lang: Lang) -> Value {
        let cases: Vec<Value> = self.done.iter().map(|done| done.json(lang)).collect();
        let counts = self.counts();
        json!({
            "passed": counts.passed,
            "failed": counts.failed,
            "not_run": counts.not_run,
            "not_offered": counts.not_offered,
            "seconds": self.time.as_secs_f64(),
            "cases": cases,
        })
    }

    /// For a CI server: JUnit XML.
    #[must_use]
    pub fn junit(&self, lang: Lang) -> String {
        let counts = self.counts();
        let skipped = counts.not_run + counts.not_offered;
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"hermes-mobile check\" \
             tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{skipped}\" time=\"{:.3}\">\n",
            self.done.len(),
            counts.failed,
            self.time.as_secs_f64()
        );
        for done in &self.done {
            let words = done.case.words(lang);
            out.push_str(&format!(
                "<testcase classname=\"{}\" name=\"{}: {}\" time=\"{:.3}\">",
                xml(&done.case.from),
                xml(&done.case.id),
                xml(&words.title),
                done.time.as_secs_f64()
            ));
            match &done.outcome {
                Outcome::Passed => {}
                Outcome::Failed(failure) => {
                    let mut text = String::new();
                    done.text(lang, false, &mut text);
                    out.push_str(&format!(
                        "<failure message=\"{}\">{}</failure>",
                        xml(failure.came.text(lang)),
                        xml(&text)
                    ));
                }
                Outcome::NotRun(why) => {
                    out.push_str(&format!("<skipped message=\"{}\"/>", xml(&why.text(lang))));
                }
                Outcome::NotOffered(feature) => {
                    let what = say(lang, "не предлагается", "not offered");
                    out.push_str(&format!("<skipped message=\"{what}: {}\"/>", xml(feature)));
                }
            }
            out.push_str("</testcase>\n");
        }
        out.push_str("</testsuite>\n</testsuites>\n");
        out
    }
}

impl Done {
    fn text(&self, lang: Lang, all: bool, out: &mut String) {
        let words = self.case.words(lang);
        let head = |sign: &str| format!("{sign} {} — {} [{}]\n", self.case.id, words.title, self.case.from);
        match &self.outcome {
            Outcome::Passed if all => out.push_str(&head("+")),
            Outcome::Passed => {}
            Outcome::NotRun(why) => {
                let what = say(lang, "не проверено", "not run");
                out.push_str(&format!("{}    {what}: {}\n", head("?"), why.text(lang)));
            }
            Outcome::NotOffered(feature) if all => {
                let what = say(lang, "не предлагается", "not offered");
                out.push_str(&format!("{}    {what}: {feature}\n", head("o")));
            }
            Outcome::NotOffered(_) => {}
            Outcome::Failed(failure) => {
                out.push_str(&head("-"));
                let mut row = |name: &str, text: &str| out.push_str(&format!("    {name}: {text}\n"));
                row(say(lang, "что послать", "what to send"), &words.send);
                row(say(lang, "что должно быть", "what must come"), &words.expect);
                let step = format!("{} {}", say(lang, "шаг", "step"), failure.step);
                row(
                    &step,
                    &format!("{} {}", say(lang, "ожидалось", "expected"), failure.expected.text(lang)),
                );
                row(say(lang, "пришло", "came"), failure.came.text(lang));
                row(say(lang, "частая ошибка", "typical mistake"), &words.mistake);
                for line in &failure.lines {
                    out.push_str(&format!("      {line}\n"));
                }
            }
        }
    }

    fn json(&self, lang: Lang) -> Value {
        let words = self.case.words(lang);
        let mut value = json!({
            "id": self.case.id,
            "from": self.case.from,
            "title": words.title,
            "seconds": self.time.as_secs_f64(),
        });
        let more = match &self.outcome {
            Outcome::Passed => json!({"outcome": "passed"}),
            Outcome::NotRun(why) => json!({"outcome": "not_run", "why": why.text(lang)}),
            Outcome::NotOffered(feature) => json!({"outcome": "not_offered", "feature": feature}),
            Outcome::Failed(failure) => json!({
                "outcome": "failed",
                "send": words.send,
                "expect": words.expect,
                "mistake": words.mistake,
                "step": failure.step,
                "expected": failure.expected.text(lang),
                "came": failure.came.text(lang),
                "lines": failure.lines,
            }),
        };
        if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
            value.extend(more);
        }
        value
    }
}

/// Text as it may stand in XML; characters that XML cannot hold are left out.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}
