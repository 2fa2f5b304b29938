// SPDX-License-Identifier: GPL-2.0-only
//! `baton report`: a page of one or more simulated runs, which needs only a browser.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use baton_sim::report::{Run, VERSION};

use super::print;
use crate::cli::Report;
use baton_control::error::{Error, Result};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// In the order of their dependencies.
const SCRIPTS: [&str; 11] = [
    include_str!("format.js"),
    include_str!("table.js"),
    include_str!("curves.js"),
    include_str!("detail.js"),
    include_str!("view.js"),
    include_str!("strip.js"),
    include_str!("spans.js"),
    include_str!("tasks.js"),
    include_str!("interval.js"),
    include_str!("timeline.js"),
    include_str!("start.js"),
];

pub fn command(args: &Report) -> Result<ExitCode> {
    let mut runs = Vec::new();
    for path in &args.runs {
        let doing = || format!("reading {}", path.display());
        let text = fs::read_to_string(path).map_err(|e| Error::file(doing(), &e))?;
        runs.extend(read(&text).map_err(|why| {
            Error::user(
                format!("{}: {why}", doing()),
                "give files that `baton sim --json` of this version has printed",
            )
        })?);
    }
    let page = page(&runs)?;
    if args.output == Path::new("-") {
        print(page)?;
        return Ok(ExitCode::SUCCESS);
    }
    fs::write(&args.output, page)
        .map_err(|e| Error::file(format!("writing {}", args.output.display()), &e))?;
    eprintln!(
        "baton: {} shows {} run(s); open it in a browser",
        args.output.display(),
        runs.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// The runs of a file: a single one, or a list.
fn read(text: &str) -> std::result::Result<Vec<Run>, String> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|e| format!("it is no JSON: {e}"))?;
    let values = match value {
        serde_json::Value::Array(values) => values,
        one => vec![one],
    };
    if values.is_empty() {
        return Err("there is no run in it".into());
    }
    values.into_iter().map(run).collect()
}

fn run(value: serde_json::Value) -> std::result::Result<Run, String> {
    // The version is checked first, as other versions may have another format.
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(format!(
                "it is of version {version}, and this Baton reads version {VERSION}"
            ))
        }
        None => return Err("it is no run: it has no version".into()),
    }
    let run: Run = serde_json::from_value(value).map_err(|e| format!("it is no run: {e}"))?;
    run.timeline
        .as_ref()
        .map_or(Ok(()), |timeline| timeline.cells().map(drop))?;
    let detail = run
        .detail
        .as_ref()
        .map_or(Ok(()), |detail| detail.decode().map(drop));
    detail.map_err(|why| format!("its detail is wrong: {why}"))?;
    Ok(run)
}

/// The HTML of the page.
fn page(runs: &[Run]) -> Result<String> {
    let wrong = |e| Error::baton(format!("the result cannot be written as JSON: {e}"));
    let mut data = serde_json::to_value(runs).map_err(wrong)?;
    for run in data.as_array_mut().into_iter().flatten() {
        // A number in JavaScript has 53 bits.
        run["seed"] = run["seed"].to_string().into();
    }
    // No `<` is left that could end the surrounding script. In JSON it can occur only in strings,
    // where the escape has the same meaning.
    let data = data.to_string().replace('<', "\\u003c");
    let names: Vec<&str> = runs.iter().map(|run| run.policy.as_str()).collect();
    let title = escape(&format!(
        "{} · {}",
        names.join(", "),
        runs.first().map_or("", |run| &run.workload)
    ));
    // A run can contain any text, so it is inserted last and not searched for placeholders.
    let parts = [
        ("TITLE", title),
        ("STYLE", STYLE.into()),
        ("SCRIPT", SCRIPTS.concat()),
        ("DATA", data),
    ];
    let mut page = String::new();
    let mut rest = PAGE;
    for (name, text) in &parts {
        let (before, after) = rest
            .split_once(&format!("@{name}@"))
            .ok_or_else(|| Error::baton(format!("the page has no place for {name}")))?;
        page.push_str(before);
        page.push_str(text);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// Escapes a text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_run(policy: &str) -> Run {
        Run {
            version: VERSION,
            policy: policy.into(),
            workload: "pipe".into(),
            topology: "1x2x1".into(),
            seed: u64::MAX,
            seeds: 1,
            confidence: None,
            jitter_ppm: 0,
            duration_ns: 1,
            stuck_ns: None,
            hash: "0".into(),
            events: 0,
            groups: vec![],
            cpu: Default::default(),
            fairness: None,
            upgrades: 0,
            refused_upgrades: vec![],
            tasks_not_made: 0,
            hints: 0,
            hints_refused: 0,
            faults: vec![],
            timeline: None,
            detail: None,
        }
    }

    #[test]
    fn files_are_read_or_refused() {
        let check =
            |text: &str, expected: std::result::Result<usize, &str>| match (read(text), expected) {
                (Ok(runs), Ok(count)) => assert_eq!(runs.len(), count, "{text}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{text}: {why}"),
                (got, _) => panic!("{text}: {got:?}"),
            };
        let good = serde_json::to_string(&a_run("wfq")).unwrap();
        let timeline = r#""timeline":{"column_ns":1,"columns":1,"rows":[{"first":0,"cpus":1,"cells":"0z00"}],"waiting":[0]}}"#;
        check(&good, Ok(1));
        check(&format!("[{good},{good}]"), Ok(2));
        check("[]", Err("no run in it"));
        check("{", Err("no JSON"));
        check("3", Err("has no version"));
        check(
            &good.replace("\"version\":1", "\"version\":2"),
            Err("of version 2"),
        );
        check(&good.replace("\"hash\":\"0\",", ""), Err("hash"));
        check(
            &format!("{},{timeline}", good.trim_end_matches('}')),
            Err("CPU 0"),
        );
        let detail =
            r#""detail":{"from_ns":0,"to_ns":9,"cpus":1,"groups":[],"tasks":[],"events":"R0.0"}}"#;
        check(
            &format!("{},{detail}", good.trim_end_matches('}')),
            Err("its detail is wrong"),
        );
    }

    #[test]
    fn no_text_of_a_run_ends_the_script() {
        let page = page(&[a_run("</script><!-- @DATA@ & \"'")]).unwrap();
        assert_eq!(
            page.matches("</script").count(),
            PAGE.matches("</script").count()
        );
        assert!(page.contains("<title>&lt;/script&gt;&lt;!-- @DATA@ &amp; \"' · pipe"));
        assert!(page.contains(r#""seed":"18446744073709551615""#));
        assert!(
            !page.contains("http:") && !page.contains("https:"),
            "nothing is fetched"
        );
    }
}
