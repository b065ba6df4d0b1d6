//! `--design`, `--set` and `--codec` become settings of which everything is known to make sense.

use zpager_policy::{DesignId, PARAMETERS, Parameter, Settings};

use super::value;

/// The design that the word after `flag` names.
///
/// # Errors
/// One line: there is none.
pub(crate) fn design(flag: &str, name: &str) -> Result<DesignId, String> {
    DesignId::from_name(name).ok_or_else(|| {
        let known = DesignId::ALL.map(DesignId::name).join(", ");
        format!("{flag} {name}: not a design: there are {known}")
    })
}

/// Settings of one design with everything that `--set` and `--codec` say; of two words that set the
/// same parameter the later one counts.
///
/// # Errors
/// One line with the first thing that cannot be set.
pub(crate) fn settings(
    id: DesignId,
    words: &[String],
    codec: Option<&str>,
) -> Result<Settings, String> {
    let mut settings = Settings::of(id);
    for word in words {
        let (parameter, text) = assignment(word)?;
        if parameter.design() != id {
            return Err(format!(
                "--set {}: the design is {}: give --design {} or set what `zpager designs {}` lists",
                parameter.name,
                id.name(),
                parameter.design().name(),
                id.name()
            ));
        }
        let value = value::parse(parameter, text);
        if value.and_then(|value| settings.set(parameter.key, value).ok()).is_none() {
            let expected = value::expected(parameter);
            return Err(format!("--set {word}: not a value for it: give {expected}"));
        }
    }
    if let Some(name) = codec {
        set_codec(&mut settings, words, name)?;
    }
    Ok(settings)
}

/// What `--codec` names, which is the codec's parameter of the design.
fn set_codec(settings: &mut Settings, words: &[String], name: &str) -> Result<(), String> {
    let parameter = &PARAMETERS[settings.design().codec_key() as usize];
    if words.iter().any(|word| assignment(word).is_ok_and(|(set, _)| set.key == parameter.key)) {
        return Err(format!("--codec and --set {} name a codec both: give one", parameter.name));
    }
    let value = value::parse(parameter, name);
    value.and_then(|value| settings.set(parameter.key, value).ok()).ok_or_else(|| {
        let known = value::choices(parameter).join(", ");
        format!("--codec {name}: not a codec: there are {known}")
    })
}

/// Sets what `--store-threshold` says, which is a parameter of the design.
///
/// # Errors
/// One line: the design has none, or not of that value.
pub(crate) fn set_threshold(
    settings: &mut Settings,
    words: &[String],
    text: &str,
) -> Result<(), String> {
    let id = settings.design();
    let Some(key) = id.threshold_key() else {
        return Err(format!(
            "--store-threshold: design {} writes when its own rule says so: leave it out, or give \
             --design default or cervera",
            id.name()
        ));
    };
    let parameter = &PARAMETERS[key as usize];
    if words.iter().any(|word| assignment(word).is_ok_and(|(set, _)| set.key == key)) {
        return Err(format!(
            "--store-threshold and --set {} say the same: give one",
            parameter.name
        ));
    }
    let value = percent(text);
    value
        .and_then(|value| settings.set(key, value).ok())
        .ok_or_else(|| format!("--store-threshold {text}: not a threshold: give 1% to 100%"))
}

/// The number before a percent sign, which may be left out.
pub(crate) fn percent(text: &str) -> Option<u64> {
    value::digits(text.strip_suffix('%').unwrap_or(text))
}

/// The two sides of `NAME=VALUE`.
fn assignment(word: &str) -> Result<(&'static Parameter, &str), String> {
    let Some((name, text)) = word.split_once('=') else {
        return Err(format!("--set {word}: no value: give NAME=VALUE, such as cervera.cache=1M"));
    };
    let unknown = || match name.split('.').next().and_then(DesignId::from_name) {
        Some(id) => {
            let known: Vec<&str> = Parameter::of(id).map(|parameter| parameter.name).collect();
            format!("--set {name}: not a parameter: {} has {}", id.name(), known.join(", "))
        }
        None => format!(
            "--set {name}: not a parameter: `zpager designs` lists all, such as {}",
            PARAMETERS[0].name
        ),
    };
    Parameter::from_name(name).map(|parameter| (parameter, text)).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpager_codec::CodecId;
    use zpager_policy::{AUTO, Key};

    fn set(id: DesignId, line: &str, codec: Option<&str>) -> Result<Settings, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        settings(id, &words, codec)
    }

    #[test]
    fn what_is_set_is_there_and_the_later_word_counts() {
        let found = set(
            DesignId::Cervera,
            "cervera.cache=2M cervera.threshold=10% cervera.cache=512K cervera.codec=wkdm",
            None,
        );
        let found = found.expect("sound");
        assert_eq!(found.get(Key::CerveraCache), 512 << 10);
        assert_eq!(found.get(Key::CerveraThreshold), 10);
        assert_eq!(found.get(Key::CerveraCodec), CodecId::Wkdm as u64);
        assert_eq!(found.get(Key::CerveraVirtual), 200);
        let found = set(DesignId::Default, "default.split=auto", Some("lz4")).expect("sound");
        assert_eq!(found.get(Key::DefaultSplit), AUTO);
        assert_eq!(found.get(Key::DefaultCodec), CodecId::Lz4 as u64);
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_be_right() {
        let table = [
            ("cervera.cache", "NAME=VALUE"),
            ("=1", "zpager designs"),
            ("cache=1M", "zpager designs"),
            ("cervera.treshold=5", "cervera.threshold"),
            ("castro.cell=2", "--design castro"),
            ("cervera.cache=1", "64K to 64G"),
            ("cervera.cache=much", "64K to 64G"),
            ("cervera.threshold=0", "1% to 100%"),
            ("cervera.threshold=101%", "1% to 100%"),
            ("cervera.threshold=", "1% to 100%"),
            ("cervera.codec=lzma", "wk4x4"),
            ("cervera.codec=auto", "wk4x4"),
            ("cervera.residents=fifo", "arrival"),
        ];
        for (line, right) in table {
            let message = set(DesignId::Cervera, line, None).expect_err(line);
            assert!(message.contains(right), "{line}: {message}");
            assert!(message.starts_with("--set") && !message.contains('\n'), "{line}: {message}");
        }
        let message = set(DesignId::Hp, "", Some("lzma")).expect_err("no codec");
        assert!(message.starts_with("--codec lzma") && message.contains("wk4x4"), "{message}");
        let message = set(DesignId::Hp, "hp.codec=lzo", Some("lzo")).expect_err("twice");
        assert!(message.contains("give one"), "{message}");
        let threshold = |id, words: &str, text| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            let mut settings = settings(id, &words, None).expect("sound");
            set_threshold(&mut settings, &words, text).map(|()| settings)
        };
        for text in ["50", "50%"] {
            let found = threshold(DesignId::Default, "", text).expect("sound");
            assert_eq!(found.get(Key::DefaultThreshold), 50);
            let found = threshold(DesignId::Cervera, "", text).expect("sound");
            assert_eq!(found.get(Key::CerveraThreshold), 50);
        }
        for text in ["0", "101%", "", "%", "-5", "half", "auto", "5%%"] {
            let message = threshold(DesignId::Default, "", text).expect_err(text);
            assert!(message.contains("1% to 100%"), "{message}");
        }
        let message = threshold(DesignId::Hp, "", "50%").expect_err("no threshold");
        assert!(message.contains("--design default"), "{message}");
        let message = threshold(DesignId::Default, "default.threshold=5", "50%").expect_err("two");
        assert!(message.contains("give one"), "{message}");
        let message = design("--design", "lru").expect_err("no design");
        assert!(message.contains("cervera, hp, castro, zswap, default"), "{message}");
    }
}
