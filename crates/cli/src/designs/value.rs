//! The values of parameters as a user writes and reads them: `1M`, `50%`, `on`, `reference`.
//!
//! Invariant: what [`display`] writes [`parse`] reads.

use zpager_codec::CodecId;
use zpager_policy::{AUTO, Kind, Parameter};

use crate::size;

/// The number that a text stands for; it may be out of range. `None` when it stands for none.
pub(super) fn parse(parameter: &Parameter, text: &str) -> Option<u64> {
    if parameter.may_be_auto && text == "auto" {
        return Some(AUTO);
    }
    match parameter.kind {
        Kind::Bytes(..) | Kind::OneOf(_) => size::parse(text),
        Kind::Percent(..) => digits(text.strip_suffix('%').unwrap_or(text)),
        Kind::Count(..) => digits(text),
        Kind::Switch => ["off", "on"].iter().position(|name| *name == text).map(|at| at as u64),
        Kind::Name(names) => names.iter().position(|name| *name == text).map(|at| at as u64),
        Kind::Codec => CodecId::from_name(text).map(|codec| codec as u64),
    }
}

pub(super) fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// A value that the parameter admits.
pub(super) fn display(parameter: &Parameter, value: u64) -> String {
    if value == AUTO {
        return "auto".into();
    }
    match parameter.kind {
        Kind::Bytes(..) => size::exact(value),
        Kind::Percent(..) => format!("{value}%"),
        Kind::Count(..) | Kind::OneOf(_) => value.to_string(),
        Kind::Switch => ["off", "on"][value as usize].into(),
        Kind::Name(names) => names[value as usize].into(),
        Kind::Codec => codec(value).into(),
    }
}

fn codec(number: u64) -> &'static str {
    CodecId::ALL[number as usize].name()
}

/// What may be given, where those are few: each of them.
pub(super) fn choices(parameter: &Parameter) -> Vec<String> {
    let numbers: Vec<u64> = match parameter.kind {
        Kind::Bytes(..) | Kind::Percent(..) | Kind::Count(..) => return Vec::new(),
        Kind::OneOf(values) => values.to_vec(),
        Kind::Switch => vec![0, 1],
        Kind::Name(names) => (0..names.len() as u64).collect(),
        Kind::Codec => CodecId::ALL.map(|codec| codec as u64).to_vec(),
    };
    numbers.into_iter().map(|number| display(parameter, number)).collect()
}

/// What may be given, in words.
pub(super) fn range(parameter: &Parameter) -> String {
    let shown = |value| display(parameter, value);
    let values = match parameter.kind {
        Kind::Bytes(least, most) => format!("{} to {}", shown(least), shown(most)),
        Kind::Percent(least, most, of) => format!("{} to {} of {of}", shown(least), shown(most)),
        Kind::Count(least, most, what) => format!("{} to {} {what}", shown(least), shown(most)),
        Kind::OneOf(_) | Kind::Switch | Kind::Name(_) => alternatives(&choices(parameter)),
        Kind::Codec => "a codec".into(),
    };
    match parameter.may_be_auto {
        true => format!("auto, or {values}"),
        false => values,
    }
}

/// What would be right where something else was given.
pub(super) fn expected(parameter: &Parameter) -> String {
    let auto = if parameter.may_be_auto { "auto or " } else { "" };
    match parameter.kind {
        Kind::Codec => format!("{auto}one of {}", choices(parameter).join(", ")),
        _ => range(parameter),
    }
}

/// `1, 2 or 4`.
fn alternatives(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_policy::PARAMETERS;

    #[test]
    fn what_is_shown_can_be_given() {
        for parameter in &PARAMETERS {
            let mut values = vec![parameter.default];
            match parameter.kind {
                Kind::Bytes(least, most)
                | Kind::Percent(least, most, _)
                | Kind::Count(least, most, _) => values.extend([least, least + 1, most - 1, most]),
                _ => values.extend(choices(parameter).iter().map(|name| {
                    parse(parameter, name).unwrap_or_else(|| panic!("{}: {name}", parameter.name))
                })),
            }
            for value in values {
                assert!(parameter.admits(value), "{}: {value}", parameter.name);
                let shown = display(parameter, value);
                assert_eq!(parse(parameter, &shown), Some(value), "{}: {shown}", parameter.name);
            }
            assert!(!range(parameter).is_empty() && !range(parameter).contains('\n'));
        }
    }

    #[test]
    fn what_is_no_value_is_none() {
        for parameter in &PARAMETERS {
            for text in ["", " ", "-1", "+1", "1.5%", "50%%", "%", "many", "On", "0x10", "½"] {
                assert_eq!(parse(parameter, text), None, "{}: {text}", parameter.name);
            }
            assert_eq!(parse(parameter, "auto").is_some(), parameter.may_be_auto);
        }
    }

    #[test]
    fn ranges_read_well() {
        let table = [
            ("cervera.cache", "64K to 64G"),
            ("cervera.threshold", "1% to 100% of the buffers"),
            ("castro.cell", "1, 2 or 4"),
            ("castro.switch", "off or on"),
            ("castro.variant", "reference, sluggish or aggressive"),
            ("default.split", "auto, or 7% to 93% of resident and compressed memory"),
            ("default.codec", "auto, or a codec"),
        ];
        for (name, expected) in table {
            let parameter = Parameter::from_name(name).expect(name);
            assert_eq!(range(parameter), expected);
        }
    }
}
