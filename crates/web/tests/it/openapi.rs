//! The OpenAPI document: every path answers, and every answer has the form that the document says.

use crate::common::start;
use mmb_testkit::{Tcp, Udp};
use serde_json::{Value, json};

const POLICY: &str = "\
add id 1 prio 10 name dns udp-dport 53 accept
add id 2 prio 20 ip-proto udp drop
add-stateful id 7 ip-proto tcp accept
";

/// What is sent to a path whose request has a body.
fn body(path: &str) -> Value {
    match path {
        "/api/v1/commands" => {
            json!({ "commands": ["list", "show conn summary", "show tables", "show offload"] })
        }
        "/api/v1/explain" => json!({ "packet": "all" }),
        "/api/v1/connections/kill" => json!({ "filter": "udp-dport 9" }),
        "/api/v1/counters/clear" => Value::Null,
        "/api/v1/history/rollback" => json!({ "version": 1 }),
        _ => json!({ "policy": format!("{POLICY}add id 9 tcp-dport 22 drop\n") }),
    }
}

#[test]
fn every_path_answers_as_the_document_says() {
    let mmb = start(POLICY);
    mmb.feed(&[
        Udp { dport: 53, ..Udp::default() }.over_ip4(),
        Udp::default().over_ip4(),
        Tcp::default().over_ip4(),
    ]);
    let document = mmb.json("/api/openapi.json");
    assert!(
        document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")),
        "{}",
        document["openapi"]
    );
    let changed = json!({ "policy": format!("{POLICY}add id 8 tcp-dport 21 drop\n") });
    assert_eq!(mmb.send("PUT", "/api/v1/policy", &changed).status, 200, "there is a version before");
    let mut operations = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            operations += 1;
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}");
            assert!(operation["responses"].get("default").is_some(), "{method} {path}: what errors are");
            let url = path.replace("{id}", "1");
            if path == "/api/v1/policy/confirm" {
                let waiting = json!({ "policy": format!("{POLICY}add id 99 tcp-dport 99 drop\n") });
                assert_eq!(mmb.send("PUT", "/api/v1/policy?confirm=600", &waiting).status, 200);
            }
            let reply = match method.as_str() {
                "get" => mmb.get(&url),
                method => mmb.send(&method.to_uppercase(), &url, &body(path)),
            };
            let described = &operation["responses"][reply.status.to_string()];
            assert!(
                described.is_object(),
                "{method} {path}: {} is not described: {}",
                reply.status,
                reply.body
            );
            if let Some(content) =
                described.get("content").and_then(|content| content.get("application/json"))
            {
                let found = conforms(&document, &content["schema"], &reply.json());
                assert_eq!(found, Ok(()), "{method} {path}: {}", reply.body);
            }
        }
    }
    assert_eq!(operations, 22, "operations");
    let problem = mmb.get("/api/v1/rules/77").json();
    assert_eq!(conforms(&document, &json!({ "$ref": "#/components/schemas/Problem" }), &problem), Ok(()));
}

/// Whether a value has the form of a schema: the keywords of JSON Schema that the document uses.
fn conforms(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let fail = |why: &str| Err(format!("{why}: {value} of {schema}"));
    let known = [
        "$ref",
        "type",
        "properties",
        "required",
        "items",
        "oneOf",
        "anyOf",
        "allOf",
        "enum",
        "const",
        "description",
        "format",
        "minimum",
        "additionalProperties",
        "propertyNames",
        "prefixItems",
        "default",
        "title",
    ];
    let Some(keywords) = schema.as_object() else { return fail("no schema") };
    if let Some(unknown) = keywords.keys().find(|keyword| !known.contains(&keyword.as_str())) {
        return fail(&format!("the keyword {unknown} is not checked"));
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let Some(target) = document.pointer(reference.trim_start_matches('#')) else {
            return fail("no target");
        };
        return conforms(document, target, value);
    }
    if let Some(kinds) = schema.get("type") {
        let is = |kind: &Value| match kind.as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("integer") => value.is_u64() || value.is_i64(),
            Some("number") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            Some("null") => value.is_null(),
            _ => false,
        };
        let fits = kinds.as_array().map_or_else(|| is(kinds), |kinds| kinds.iter().any(is));
        if !fits {
            return fail("the type");
        }
    }
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        return fail("the value");
    }
    for one in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[one].as_array() {
            let errors: Vec<String> =
                choices.iter().filter_map(|choice| conforms(document, choice, value).err()).collect();
            if errors.len() == choices.len() {
                return fail(&format!("{one}: {}", errors.join("; ")));
            }
        }
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        conforms(document, part, value)?;
    }
    if let Some(object) = value.as_object() {
        for required in schema["required"].as_array().into_iter().flatten() {
            if !required.as_str().is_some_and(|name| object.contains_key(name)) {
                return fail(&format!("{required} is missing"));
            }
        }
        let properties = schema["properties"].as_object();
        for (name, member) in object {
            match properties.and_then(|properties| properties.get(name)) {
                Some(property) => conforms(document, property, member)?,
                None if schema["additionalProperties"].is_object() => {
                    conforms(document, &schema["additionalProperties"], member)?;
                }
                None if properties.is_some() && schema.get("allOf").is_none() => {
                    return fail(&format!("{name} is not described"));
                }
                None => {}
            }
        }
    }
    if let Some(items) = value.as_array() {
        for (at, item) in items.iter().enumerate() {
            match (schema["prefixItems"].get(at), schema["items"].is_object()) {
                (Some(schema), _) => conforms(document, schema, item)?,
                (None, true) => conforms(document, &schema["items"], item)?,
                (None, false) => {}
            }
        }
    }
    Ok(())
}
