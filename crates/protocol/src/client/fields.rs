//! The fields of one JSON object, found without building a tree: only the fields that the protocol names are kept, and
//! those as slices of the text. What nobody asked for is skipped whatever it holds, however deep.

use std::{borrow::Cow, fmt, str::FromStr};

use memchr::memchr;
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::problem::Problem;

/// The known fields of an object: `names` and, at the same place, what stands there.
pub(super) struct Fields<'a, const N: usize> {
    names: &'static [&'static str; N],
    /// Where the object is in the frame, with a dot at the end, for `detail`: `device.`, or nothing for the frame itself.
    place: &'static str,
    values: [Option<&'a RawValue>; N],
    twice: [bool; N],
}

impl<'a, const N: usize> Fields<'a, N> {
    /// Reads an object.
    ///
    /// # Errors
    /// What `serde_json` says when the text is not one JSON object.
    pub(super) fn read(
        text: &'a str,
        names: &'static [&'static str; N],
        place: &'static str,
    ) -> Result<Self, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_str(text);
        let fields =
            json.deserialize_map(ObjectVisitor(Self { names, place, values: [None; N], twice: [false; N] }))?;
        json.end()?;
        Ok(fields)
    }

    /// The raw value of a field; `None` if it is absent or `null`.
    ///
    /// # Errors
    /// When the field is there twice: nobody can tell which was meant.
    pub(super) fn raw(&self, name: &'static str) -> Result<Option<&'a RawValue>, Problem> {
        let Some(index) = self.names.iter().position(|n| *n == name) else {
            return Ok(None);
        };
        if self.twice.get(index).is_some_and(|twice| *twice) {
            return Err(Problem::bad(format!(
                "{}{name} is there twice; a field may be there once",
                self.place
            )));
        }
        Ok(self.values.get(index).copied().flatten().filter(|v| v.get() != "null"))
    }

    /// A string.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn string(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, Problem> {
        self.raw(name)?.map(|raw| text_of(raw).ok_or_else(|| self.wrong(name, "a string"))).transpose()
    }

    /// A whole number from 0.
    ///
    /// # Errors
    /// When it is something else, or does not fit.
    pub(super) fn whole<T: FromStr>(&self, name: &'static str) -> Result<Option<T>, Problem> {
        self.raw(name)?
            .map(|raw| raw.get().parse().map_err(|_| self.wrong(name, "a whole number, 0 or more")))
            .transpose()
    }

    /// A number from 0, rounded to a whole one: clocks and audio libraries of clients give fractions.
    ///
    /// # Errors
    /// When it is something else, or over 2^53.
    pub(super) fn rounded(&self, name: &'static str) -> Result<Option<u64>, Problem> {
        const LARGEST: f64 = 9_007_199_254_740_992.0;
        self.raw(name)?
            .map(|raw| {
                serde_json::from_str::<f64>(raw.get())
                    .ok()
                    .filter(|n| (0.0..=LARGEST).contains(n))
                    // In range: checked above.
                    .map(|n| n.round() as u64)
                    .ok_or_else(|| self.wrong(name, "a number from 0 to 2^53"))
            })
            .transpose()
    }

    /// An object inside this one.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn object<const M: usize>(
        &self,
        name: &'static str,
        names: &'static [&'static str; M],
        place: &'static str,
    ) -> Result<Option<Fields<'a, M>>, Problem> {
        self.raw(name)?
            .map(|raw| Fields::read(raw.get(), names, place).map_err(|_| self.wrong(name, "an object")))
            .transpose()
    }

    /// A list of at most `most` strings.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn strings(&self, name: &'static str, most: usize) -> Result<Option<Vec<String>>, Problem> {
        self.raw(name)?
            .map(|raw| {
                serde_json::Deserializer::from_str(raw.get())
                    .deserialize_seq(StringsVisitor { most })
                    .map_err(|_| self.wrong(name, &format!("a list of at most {most} strings")))
            })
            .transpose()
    }

    /// The refusal of a field that is not what it must be.
    pub(super) fn wrong(&self, name: &str, allowed: &str) -> Problem {
        Problem::bad(format!("{}{name} must be {allowed}", self.place))
    }
}

/// The string that a raw JSON value is; borrowed when nothing in it is escaped.
fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if memchr(b'\\', inner.as_bytes()).is_some() {
        serde_json::from_str(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

struct ObjectVisitor<'a, const N: usize>(Fields<'a, N>);

impl<'de: 'a, 'a, const N: usize> Visitor<'de> for ObjectVisitor<'a, N> {
    type Value = Fields<'a, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = self.0;
        while let Some(index) = map.next_key_seed(NameSeed(fields.names))? {
            let slot = index.and_then(|i| Some((fields.values.get_mut(i)?, fields.twice.get_mut(i)?)));
            match slot {
                Some((value, twice)) => {
                    *twice = value.is_some();
                    *value = Some(map.next_value()?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}

/// Reads the name of a field as its place in the list, without keeping the name.
struct NameSeed(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|n| *n == name))
    }
}

/// A list of strings that stops at its bound, before more memory is taken.
struct StringsVisitor {
    most: usize,
}

impl<'de> Visitor<'de> for StringsVisitor {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut strings = Vec::new();
        while let Some(string) = seq.next_element()? {
            if strings.len() == self.most {
                return Err(A::Error::custom("too many"));
            }
            strings.push(string);
        }
        Ok(strings)
    }
}
