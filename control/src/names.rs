// SPDX-License-Identifier: GPL-2.0-only
//! The formats of the command line's arguments: names of policies, their options, files of a guest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_abi::{BATON_NAME_LEN, BATON_OPTIONS_LEN};

/// The name of a policy in the kernel: `[a-z0-9_]`. A dash, as in the name of a package, becomes an
/// underscore.
pub fn policy(text: &str) -> Result<String, String> {
    let name = text.replace('-', "_");
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || !name.chars().all(known) {
        return Err("a policy's name has small letters, digits and _ only".into());
    }
    if name.len() >= BATON_NAME_LEN {
        return Err(format!(
            "a policy's name has at most {} letters",
            BATON_NAME_LEN - 1
        ));
    }
    Ok(name)
}

/// The name of a partition: `[a-z0-9_-]`.
pub fn partition(text: &str) -> Result<String, String> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    if text.is_empty() || text.len() >= BATON_NAME_LEN || !text.chars().all(known) {
        return Err(format!(
            "a partition's name has small letters, digits, _ and -, at most {}",
            BATON_NAME_LEN - 1
        ));
    }
    Ok(text.into())
}

/// A name that [`policy`] accepts, and that is valid for a Rust package.
pub fn new_policy(text: &str) -> Result<String, String> {
    let name = policy(text)?;
    if name != text || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(
            "the name must begin with a letter, and have letters, digits and _ only".into(),
        );
    }
    // Crates with which a policy or its module is linked.
    if [
        "baton", "core", "alloc", "std", "policy", "test", "template",
    ]
    .contains(&text)
    {
        return Err(
            "that name is taken by something a policy is built with: choose another".into(),
        );
    }
    Ok(name)
}

/// `KEY=VALUE,KEY=VALUE`, without spaces around the parts.
pub fn options(text: &str) -> Result<String, String> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for item in text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let (key, value) = item
            .split_once('=')
            .ok_or_else(|| format!("'{item}' is not KEY=VALUE"))?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || item.chars().any(char::is_control) {
            return Err(format!("{item:?} is not KEY=VALUE"));
        }
        if pairs.iter().any(|(k, _)| *k == key) {
            return Err(format!("the option '{key}' is there twice"));
        }
        pairs.push((key, value));
    }
    let text = pairs
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect::<Vec<_>>()
        .join(",");
    if text.len() >= BATON_OPTIONS_LEN {
        return Err(format!(
            "options have at most {} letters",
            BATON_OPTIONS_LEN - 1
        ));
    }
    Ok(text)
}

/// A file to copy into the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIn {
    pub host: PathBuf,
    /// Absolute path in the guest.
    pub guest: String,
}

/// A time: `30s`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = "a time is a whole number and ns, us, ms, s or min: 30s";
    let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let ns = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        _ => return Err(wrong.into()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong)?;
    let time = number
        .checked_mul(ns)
        .filter(|&ns| (1..=86_400_000_000_000).contains(&ns));
    time.map(Duration::from_nanos)
        .ok_or_else(|| "a time is 1 ns to a day".into())
}

/// `FILE[:DEST]`. Without DEST the file goes into `/`, the directory in which commands of the guest
/// begin.
pub fn file_in(text: &str) -> Result<FileIn, String> {
    let (host, guest) = match text.rsplit_once(':') {
        Some((host, guest)) if guest.starts_with('/') => (host, guest.to_owned()),
        Some((_, guest)) => return Err(format!("'{guest}' is not an absolute path of the guest")),
        None => {
            let name = Path::new(text).file_name().and_then(|n| n.to_str());
            (
                text,
                format!("/{}", name.ok_or("a file without a name needs :DEST")?),
            )
        }
    };
    if host.is_empty() {
        return Err("there is no file before the colon".into());
    }
    Ok(FileIn {
        host: host.into(),
        guest,
    })
}

/// A file to copy back from the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOut {
    /// Absolute path in the guest.
    pub guest: String,
    pub host: PathBuf,
}

/// `GUESTFILE:HOSTFILE`. A relative path in the guest begins at `/`, where the command begins.
pub fn file_out(text: &str) -> Result<FileOut, String> {
    match text.split_once(':') {
        Some((guest, host)) if !guest.is_empty() && !host.is_empty() => Ok(FileOut {
            guest: format!("/{}", guest.trim_matches('/')),
            host: host.into(),
        }),
        _ => Err("write GUESTFILE:HOSTFILE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: PartialEq + std::fmt::Debug>(got: Result<T, String>, expected: Option<T>) {
        assert_eq!(got.as_ref().ok(), expected.as_ref(), "{got:?}");
    }

    #[test]
    fn names_of_policies() {
        check(policy("wfq"), Some("wfq".into()));
        check(policy("fifo-c"), Some("fifo_c".into()));
        for wrong in ["", "Wfq", "a b", "../a", "a.ko", &"x".repeat(32)] {
            check(policy(wrong), None);
        }
        check(new_policy("mine2"), Some("mine2".into()));
        for wrong in ["2mine", "my-own", "core", "_x"] {
            check(new_policy(wrong), None);
        }
    }

    #[test]
    fn options_of_policies() {
        check(options("slice=3ms, x=1,"), Some("slice=3ms,x=1".into()));
        check(options(""), Some(String::new()));
        check(options("a=b=c"), Some("a=b=c".into()));
        for wrong in [
            "slice",
            "=3",
            "a=1,a=2",
            "a=1\n2",
            &format!("a={}", "1".repeat(254)),
        ] {
            check(options(wrong), None);
        }
        check(
            options(&format!("a={}", "1".repeat(253))),
            Some(format!("a={}", "1".repeat(253))),
        );
    }

    #[test]
    fn files_of_a_guest() {
        check(
            file_in("d/a.txt"),
            Some(FileIn {
                host: "d/a.txt".into(),
                guest: "/a.txt".into(),
            }),
        );
        check(
            file_in("a:/x/b"),
            Some(FileIn {
                host: "a".into(),
                guest: "/x/b".into(),
            }),
        );
        for wrong in ["a:b", "", ":/x", "/", ".."] {
            check(file_in(wrong), None);
        }
        check(
            file_out("/tmp/a:b"),
            Some(FileOut {
                guest: "/tmp/a".into(),
                host: "b".into(),
            }),
        );
        check(
            file_out("r.json:out/r.json"),
            Some(FileOut {
                guest: "/r.json".into(),
                host: "out/r.json".into(),
            }),
        );
        for wrong in ["a", ":b", "a:"] {
            check(file_out(wrong), None);
        }
    }
}
