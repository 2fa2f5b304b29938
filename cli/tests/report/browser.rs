// SPDX-License-Identifier: GPL-2.0-only
//! Headless Chromium: opens a page in a window, and reads its contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Inserted before the page's own scripts: records all errors.
const WATCH: &str = "<script>
const WRONG = [];
for (const name of ['error', 'securitypolicyviolation', 'unhandledrejection'])
  addEventListener(name, (event) => WRONG.push(name + ': ' + (event.message || \
  event.violatedDirective || event.reason)), true);
for (const name of ['error', 'warn']) console[name] = (...all) => WRONG.push('console: ' + \
all.join(' '));
</script>";

/// Inserted after them: uses the keyboard, and records what a dump of the elements does not show.
const ASK: &str = "<script>
const press = (element, key) => \
{ element.focus(); element.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true })); };
const note = (name, value) => { document.documentElement.dataset[name] = value; };
setTimeout(() => {
  note('red', [...document.querySelectorAll('canvas.cpus')].map((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let red = 0;
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 0 && data[at] > 170 && data[at \
    + 1] < 100) red += 1;
    return red / (data.length / 4);
  }).join(' '));
  for (const value of ['tail', 'all']) document.querySelector(`input[value=${value}]`).click();
  const curves = document.getElementById('curves');
  press(curves, 'End');
  note('readcurve', document.getElementById('curves-read').textContent);
  const canvas = document.querySelector('canvas.cpus');
  if (canvas) {
    press(canvas, 'ArrowDown');
    note('readtimeline', canvas.closest('.timeline').querySelector('.read').textContent);
    canvas.blur();
  }
  try {
    /* MORE */
  } catch (error) {
    WRONG.push('script of the test: ' + error);
  }
  curves.blur();
  note('curves', document.querySelectorAll('#curves .curve').length);
  note('toowide', Math.max(0, document.documentElement.scrollWidth - innerWidth));
  if (document.documentElement.dataset.drawn !== 'yes') WRONG.push('the page is not drawn');
  note('errors', WRONG.join('; '));
}, 200);
</script>";

/// A number in the table.
#[derive(Debug)]
pub struct Cell {
    pub run: usize,
    /// Its path in the run.
    pub key: String,
    /// The exact value.
    pub value: String,
    /// The displayed text.
    pub text: String,
    /// The displayed confidence interval of a mean.
    pub within: String,
    /// The result of the comparison: better, worse, or nothing.
    pub word: String,
}

/// Parameters for opening a page.
#[derive(Clone, Copy, Default)]
pub struct Window<'a> {
    pub width: u32,
    pub dark: bool,
    /// The part of its address after the #.
    pub hash: &'a str,
    /// A script that uses the page. Its notes are in [`Dom::notes`].
    pub script: &'a str,
}

/// The contents of the page.
#[derive(Debug)]
pub struct Dom {
    /// The notes of the script, by name.
    pub notes: BTreeMap<String, String>,
    /// The numbers of the selected interval, by run and path.
    pub interval: BTreeMap<(usize, String), u64>,
    pub cells: Vec<Cell>,
    /// By run and name. The problems of a run have the names `wrong 0` and so on.
    pub facts: BTreeMap<(usize, String), String>,
    pub errors: String,
    pub too_wide: String,
    pub curves: usize,
    /// The share of red in each timeline.
    pub red: Vec<f64>,
    pub read_curve: String,
    pub read_timeline: String,
}

/// Opens a page in a window, and saves a picture.
pub fn open(page: &Path, window: Window, picture: &str) -> Dom {
    let Window {
        width,
        dark,
        hash,
        script,
    } = window;
    let ask = ASK.replacen("/* MORE */", script, 1);
    let text = std::fs::read_to_string(page).unwrap();
    let text = text
        .replacen("<head>", &format!("<head>{WATCH}"), 1)
        .replacen("</body>", &format!("{ask}</body>"), 1);
    let watched = page.with_file_name(format!("{picture}.html"));
    std::fs::write(&watched, text).unwrap();
    let height = if width < 600 { 3600 } else { 2600 };
    let cache = std::env::var_os("BATON_CACHE")
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join("report");
    std::fs::create_dir_all(&cache).unwrap();
    let mut browser = Command::new("timeout");
    browser.args(["--kill-after=5", "60", "chromium-headless-shell"]);
    // Chromium's sandbox does not work for root. The test has its own profile, so that nothing is
    // shared or left.
    browser.args([
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=3000",
        "--disable-dev-shm-usage",
    ]);
    browser.arg(format!(
        "--user-data-dir={}",
        page.with_file_name("profile").display()
    ));
    browser.arg(format!("--window-size={width},{height}"));
    browser.args(dark.then_some("--blink-settings=preferredColorScheme=0"));
    browser.arg(format!(
        "--screenshot={}",
        cache.join(format!("{picture}.png")).display()
    ));
    browser
        .arg("--dump-dom")
        .arg(format!("file://{}#{hash}", watched.display()));
    let needed = "chromium-headless-shell is needed: vm/enter has it";
    let mut output = browser.output().expect(needed);
    // On a busy machine Chromium occasionally hangs on any page. It is started once more.
    if output.status.code() == Some(124) {
        output = browser.output().expect(needed);
    }
    let dom = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && dom.contains("</html>"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    read(&dom)
}

fn read(dom: &str) -> Dom {
    let root = tags(dom, "<html").next().unwrap().0;
    let about = |name: &str| {
        attribute(root, name).unwrap_or_else(|| panic!("the page was not asked: {root}"))
    };
    let run = |tag: &str| attribute(tag, "data-run").map(|run| run.parse().unwrap());
    let cell = |(tag, text): (&str, &str)| {
        let key = attribute(tag, "data-key")?;
        let value = attribute(tag, "data-value")?;
        // The span with the number is the first element in the cell.
        let (cell, _) = text.split_once("</td>").unwrap_or((text, ""));
        let text = text.split_once('>')?.1.split('<').next()?.to_owned();
        let within = tags(cell, "<span class=\"within\"")
            .next()
            .and_then(|(_, text)| text.split('<').next());
        let word = tags(cell, "<span class=\"ratio")
            .next()
            .and_then(|(tag, _)| attribute(tag, "title"));
        let within = within.unwrap_or_default().trim().to_owned();
        Some(Cell {
            run: run(tag)?,
            key,
            value,
            text: unescape(&text),
            within,
            word: word.unwrap_or_default(),
        })
    };
    let fact = |(tag, text): (&str, &str)| {
        Some((
            (run(tag)?, attribute(tag, "data-fact")?),
            unescape(text.split('<').next()?),
        ))
    };
    let number = |(tag, _): (&str, &str)| {
        let number = attribute(tag, "data-exact")?.parse().unwrap();
        Some(((run(tag)?, attribute(tag, "data-interval")?), number))
    };
    let note = |part: &str| {
        let (name, value) = part.split_once("=\"")?;
        Some((name.to_owned(), unescape(value.split('"').next()?)))
    };
    Dom {
        notes: root.split("data-").skip(1).filter_map(note).collect(),
        interval: tags(dom, "<td ")
            .chain(tags(dom, "<li "))
            .filter_map(number)
            .collect(),
        cells: tags(dom, "<td ").filter_map(cell).collect(),
        facts: tags(dom, "<dd ")
            .chain(tags(dom, "<p "))
            .filter_map(fact)
            .collect(),
        errors: about("data-errors"),
        too_wide: about("data-toowide"),
        curves: about("data-curves").parse().unwrap(),
        red: about("data-red")
            .split_whitespace()
            .map(|share| share.parse().unwrap())
            .collect(),
        read_curve: about("data-readcurve"),
        read_timeline: attribute(root, "data-readtimeline").unwrap_or_default(),
    }
}

/// The tags that begin with this text, each with the text after it.
fn tags<'a>(dom: &'a str, begin: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    dom.split(begin)
        .skip(1)
        .filter_map(|rest| rest.split_once('>'))
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    rest.split('"').next().map(unescape)
}

fn unescape(text: &str) -> String {
    let plain = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&nbsp;", "\u{a0}"),
        ("&amp;", "&"),
    ];
    plain
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| {
            text.replace(escaped, plain)
        })
}
