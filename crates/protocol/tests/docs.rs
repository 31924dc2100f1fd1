//! The page for app developers names every frame, field, error code and close code.

use std::{collections::BTreeSet, fs, path::Path};

use hermes_mobile_protocol::{code::CloseCode, schema};
use serde_json::Value;

/// Names that must stand on the page.
struct Names {
    frames: BTreeSet<String>,
    fields: BTreeSet<String>,
    codes: BTreeSet<String>,
}

/// From the schemas, which are made from the types.
fn names() -> Names {
    let mut names = Names { frames: BTreeSet::new(), fields: BTreeSet::new(), codes: BTreeSet::new() };
    for (file, schema) in schema::all() {
        // `client-NAME` or `server-NAME`.
        names.frames.extend(file.split_once('-').map(|(_, t)| t.to_owned()));
        fields(&schema, &mut names.fields);
        let codes = schema.pointer("/$defs/ErrorCode/oneOf").and_then(Value::as_array);
        names
            .codes
            .extend(codes.into_iter().flatten().filter_map(|code| Some(code["const"].as_str()?.to_owned())));
    }
    names
}

/// Every name of a property, however deep.
fn fields(schema: &Value, out: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                out.extend(properties.keys().cloned());
            }
            map.values().for_each(|value| fields(value, out));
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, out)),
        _ => {}
    }
}

/// All of them; a new one does not compile until it is here.
fn close_codes() -> Vec<u16> {
    use CloseCode::{Denied, GoingAway, Normal, Overloaded, Replaced, Restart, Rubbish, TooLarge};
    let all = [Normal, GoingAway, Rubbish, Denied, TooLarge, Restart, Overloaded, Replaced];
    for code in all {
        match code {
            Normal | GoingAway | Rubbish | Denied | TooLarge | Restart | Overloaded | Replaced => {}
        }
    }
    all.map(|code| code as u16).to_vec()
}

/// The words of a page: `device.name` is `device` and `name`.
fn words(page: &str) -> BTreeSet<&str> {
    page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect()
}

#[test]
fn every_frame_field_and_code_stands_on_the_page_of_the_protocol() {
    let names = names();
    assert!(names.frames.len() > 12 && names.fields.len() > 50, "the schemas are read");
    assert_eq!(names.codes.len(), 11, "{:?}", names.codes);
    for file in ["protocol.md", "protocol.ru.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
        let page = fs::read_to_string(path).unwrap();
        let said = words(&page);
        for name in names.frames.iter().chain(&names.fields) {
            assert!(said.contains(name.as_str()), "docs/{file}: {name}");
        }
        for code in &names.codes {
            // Each has its own entry in the list of errors.
            assert!(page.contains(&format!("\n- `{code}`: ")), "docs/{file}: {code}");
        }
        for code in close_codes() {
            // Each has its own row in the table of close codes, the second cell of which is the code.
            let rows = page.lines().filter(|line| {
                line.starts_with("| ")
                    && line.split('|').nth(2).is_some_and(|c| words(c).contains(&*code.to_string()))
            });
            assert_eq!(rows.count(), 1, "docs/{file}: {code}");
        }
    }
}
