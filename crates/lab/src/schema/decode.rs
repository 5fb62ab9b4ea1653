//! Decodes a JSON value as an API server in Go would: unknown fields are noted and dropped, empty values leave,
//! required ones appear, a wrong type is refused with the Go decoder's words.

use std::collections::BTreeSet;

use gpu_dra_model::Quantity;
use serde_json::{Map, Value};

use super::{Field, Scalar, Shape, fields};

/// An object as the server keeps it, and the fields that it doesn't know.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// Paths such as `spec.devices[0].basic`.
    pub(crate) unknown: Vec<String>,
}

/// A value of the wrong type, in the words of Go's decoder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TypeMismatch(pub(crate) String);

/// Decodes `value` as the type `name`. `dropped` names further fields, as (type, field), that this server
/// drops as if their gate were off.
pub(crate) fn decode(
    name: &'static str,
    value: &Value,
    dropped: &BTreeSet<(String, String)>,
) -> Result<Decoded, TypeMismatch> {
    run(name, value, dropped, false)
}

/// As `decode`, but keeps just what is given: nothing is filled in, and nothing empty leaves. So an applied
/// configuration names the fields that its manager wants, and no others.
pub(crate) fn decode_sparse(
    name: &'static str,
    value: &Value,
    dropped: &BTreeSet<(String, String)>,
) -> Result<Decoded, TypeMismatch> {
    run(name, value, dropped, true)
}

fn run(
    name: &'static str,
    value: &Value,
    dropped: &BTreeSet<(String, String)>,
    sparse: bool,
) -> Result<Decoded, TypeMismatch> {
    let mut decoder =
        Decoder { dropped, sparse, unknown: Vec::new(), strict: Vec::new(), path: Vec::new() };
    let value = decoder.object(name, value, "")?;
    Ok(Decoded { value, unknown: decoder.unknown })
}

struct Decoder<'a> {
    dropped: &'a BTreeSet<(String, String)>,
    sparse: bool,
    unknown: Vec<String>,
    /// The path with list indices, for unknown fields.
    strict: Vec<String>,
    /// The path of field names alone, as Go's decoder reports it.
    path: Vec<&'static str>,
}

impl Decoder<'_> {
    fn object(
        &mut self,
        name: &'static str,
        value: &Value,
        owner: &str,
    ) -> Result<Value, TypeMismatch> {
        let empty = Map::new();
        let given = match value {
            Value::Null => &empty,
            Value::Object(map) => map,
            other => return Err(self.mismatch(other, owner, &format!("v1.{name}"))),
        };
        let known = fields(name);
        for key in given.keys() {
            if !known.contains_key(key.as_str()) {
                self.unknown.push(self.strict_path(key));
            }
        }
        let mut kept = Map::new();
        for (&key, field) in known {
            let gate_off = field.gated
                || (!self.dropped.is_empty()
                    && self.dropped.contains(&(name.to_owned(), key.to_owned())));
            self.path.push(key);
            self.strict.push(format!(".{key}"));
            let value = given.get(key).unwrap_or(&Value::Null);
            let decoded = self.field(name, field, value)?;
            self.strict.pop();
            self.path.pop();
            if let (Some(decoded), false) = (decoded, gate_off) {
                kept.insert(key.to_owned(), decoded);
            }
        }
        Ok(Value::Object(kept))
    }

    /// The value to keep for a field, or none if it is left out.
    fn field(
        &mut self,
        owner: &'static str,
        field: &Field,
        value: &Value,
    ) -> Result<Option<Value>, TypeMismatch> {
        if value.is_null() && (self.sparse || !field.always) {
            return Ok(None);
        }
        if value.is_null() && field.pointer {
            return Ok(Some(Value::Null));
        }
        let decoded = self.shape(owner, &field.shape, value)?;
        let opaque = matches!(field.shape, Shape::Scalar(Scalar::Any | Scalar::Raw));
        let left_out =
            !self.sparse && !field.always && !field.pointer && !opaque && is_zero(&decoded);
        Ok((!left_out).then_some(decoded))
    }

    fn shape(
        &mut self,
        owner: &'static str,
        shape: &Shape,
        value: &Value,
    ) -> Result<Value, TypeMismatch> {
        match shape {
            Shape::Scalar(scalar) => self.scalar(owner, *scalar, value),
            Shape::Struct(name) => self.object(name, value, owner),
            Shape::List(element, _) => match value {
                Value::Null => Ok(Value::Null),
                Value::Array(items) => {
                    let mut kept = Vec::with_capacity(items.len());
                    for (index, item) in items.iter().enumerate() {
                        self.strict.push(format!("[{index}]"));
                        kept.push(self.shape(owner, element, item)?);
                        self.strict.pop();
                    }
                    Ok(Value::Array(kept))
                }
                other => Err(self.mismatch(other, owner, &format!("[]{}", go_name(element)))),
            },
            Shape::Map(element, _) => match value {
                Value::Null => Ok(Value::Null),
                Value::Object(entries) => {
                    let mut kept = Map::new();
                    for (key, item) in entries {
                        self.strict.push(format!(".{key}"));
                        kept.insert(key.clone(), self.shape(owner, element, item)?);
                        self.strict.pop();
                    }
                    Ok(Value::Object(kept))
                }
                other => {
                    Err(self.mismatch(other, owner, &format!("map[string]{}", go_name(element))))
                }
            },
        }
    }

    fn scalar(&self, owner: &str, scalar: Scalar, value: &Value) -> Result<Value, TypeMismatch> {
        let fits = match scalar {
            Scalar::Any => return Ok(if value.is_null() { empty_object() } else { value.clone() }),
            Scalar::Raw => return Ok(value.clone()),
            Scalar::Quantity => return quantity(value),
            Scalar::String | Scalar::Time => value.is_string(),
            Scalar::Bool => value.is_boolean(),
            Scalar::Int64 => value.is_i64(),
            Scalar::Int32 => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        };
        match (value, fits) {
            (value, true) => Ok(value.clone()),
            (Value::Null, _) => Ok(match scalar {
                Scalar::Bool => Value::Bool(false),
                Scalar::Int32 | Scalar::Int64 => Value::from(0),
                _ => Value::from(""),
            }),
            (value, false) => Err(self.mismatch(value, owner, scalar.go_name())),
        }
    }

    fn mismatch(&self, value: &Value, owner: &str, wanted: &str) -> TypeMismatch {
        let given = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(number) if number.is_i64() && !wanted.starts_with("int") => {
                "number".to_owned()
            }
            Value::Number(number) => format!("number {number}"),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        TypeMismatch(if owner.is_empty() {
            format!("json: cannot unmarshal {given} into Go value of type {wanted}")
        } else {
            format!(
                "json: cannot unmarshal {given} into Go struct field {owner}.{} of type {wanted}",
                self.path.join(".")
            )
        })
    }

    fn strict_path(&self, key: &str) -> String {
        let prefix = self.strict.concat();
        format!("{prefix}.{key}").trim_start_matches('.').to_owned()
    }
}

fn go_name(shape: &Shape) -> String {
    match shape {
        Shape::Scalar(scalar) => scalar.go_name().to_owned(),
        Shape::Struct(name) => format!("v1.{name}"),
        Shape::List(element, _) => format!("[]{}", go_name(element)),
        Shape::Map(element, _) => format!("map[string]{}", go_name(element)),
    }
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

/// Quantities are kept in their canonical text, as the server answers them.
fn quantity(value: &Value) -> Result<Value, TypeMismatch> {
    let text = match value {
        Value::Null => return Ok(Value::from("0")),
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    match text.parse::<Quantity>() {
        Ok(quantity) => Ok(Value::from(quantity.to_string())),
        Err(_) => Err(TypeMismatch(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned(),
        )),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decoded(name: &'static str, value: Value) -> Decoded {
        decode(name, &value, &BTreeSet::new()).unwrap()
    }

    #[test]
    fn drops_the_empty_and_fills_the_required() {
        let got =
            decoded("ResourceSliceSpec", json!({"driver": "d", "devices": null, "nodeName": ""}));
        assert_eq!(
            got.value,
            json!({"driver": "d", "nodeName": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}})
        );
        assert_eq!(
            decoded("ResourceClaimSpec", json!(null)).value,
            json!({"devices": {"requests": null}})
        );
    }

    #[test]
    fn names_unknown_fields_with_their_indices() {
        let got = decoded(
            "ResourceSlice",
            json!({"spec": {"devices": [{"name": "a", "basic": {}}], "x": 1}}),
        );
        assert_eq!(got.unknown, ["spec.x", "spec.devices[0].basic"]);
    }

    #[test]
    fn refuses_wrong_types_in_gos_words() {
        let err = |value| decode("ResourceClaim", &value, &BTreeSet::new()).unwrap_err().0;
        assert_eq!(
            err(json!({"spec": {"devices": {"requests": [{"exactly": {"count": "2"}}]}}})),
            "json: cannot unmarshal string into Go struct field ExactDeviceRequest.spec.devices.requests.exactly.count of type int64"
        );
    }

    #[test]
    fn keeps_quantities_canonical_and_drops_gated_fields() {
        let got = decoded(
            "Device",
            json!({"name": "a", "attributes": {"m": {"strings": ["x"]}}, "capacity": {"memory": {"value": "1024Mi"}}}),
        );
        assert_eq!(
            got.value,
            json!({"name": "a", "attributes": {"m": {}}, "capacity": {"memory": {"value": "1Gi"}}})
        );
        let off = BTreeSet::from([("Device".to_owned(), "capacity".to_owned())]);
        let got = decode("Device", &json!({"name": "a", "capacity": {}}), &off).unwrap();
        assert_eq!(got.value, json!({"name": "a"}));
    }
}
