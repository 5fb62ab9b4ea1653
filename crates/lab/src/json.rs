//! Reads request bodies: JSON or YAML into values, and which keys a JSON document has twice.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::error::ApiError;

/// A document and its doubled keys, as paths such as `spec.devices[0].name`.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) value: Value,
    pub(crate) duplicates: Vec<String>,
}

/// Reads JSON; the last of several equal keys wins.
pub(crate) fn read_json(bytes: &[u8]) -> Result<Document, ApiError> {
    let duplicates = RefCell::new(Vec::new());
    let seed = Seed { path: String::new(), duplicates: &duplicates };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = seed
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|err| ApiError::bad_request(format!("the body is no JSON document: {err}")))?;
    Ok(Document { value, duplicates: duplicates.into_inner() })
}

/// Reads YAML, of which JSON is a part. The YAML reader itself refuses doubled keys.
pub(crate) fn read_yaml(bytes: &[u8]) -> Result<Document, ApiError> {
    if let Ok(document) = read_json(bytes) {
        return Ok(document);
    }
    serde_saphyr::from_slice(bytes)
        .map(|value| Document { value, duplicates: Vec::new() })
        .map_err(|err| ApiError::bad_request(format!("the body is no YAML document: {err}")))
}

struct Seed<'a> {
    path: String,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, list.len());
            match items.next_element_seed(Seed { path, duplicates: self.duplicates })? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path =
                if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if map.contains_key(&key) {
                self.duplicates.borrow_mut().push(path.clone());
            }
            let value = entries.next_value_seed(Seed { path, duplicates: self.duplicates })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_of_equal_keys_wins_and_is_told() {
        let got = read_json(br#"{"a": 1, "b": [{"c": 1, "c": 2}], "a": null}"#).unwrap();
        assert_eq!(got.value, json!({"a": null, "b": [{"c": 2}]}));
        assert_eq!(got.duplicates, ["b[0].c", "a"]);
    }

    #[test]
    fn garbage_is_a_bad_request() {
        for bytes in [&b"{"[..], b"", b"{} {}", b"\xff"] {
            assert_eq!(read_json(bytes).unwrap_err().code, 400);
        }
        assert_eq!(read_yaml(b"a:\n- b: 1.5\n").unwrap().value, json!({"a": [{"b": 1.5}]}));
        assert_eq!(read_yaml(b"a: [").unwrap_err().code, 400);
    }
}
