// SPDX-License-Identifier: GPL-2.0-only
//! The figures of policies' pages, each drawn from a table of its page. A comment precedes the
//! table:
//!
//! ```text
//! <!-- figure NAME: lines, log; value: LABEL; over: COLUMN; columns: A | B -->     a curve for each of these columns
//! <!-- figure NAME: lines, log; value: LABEL; over: COLUMN; columns: A; by: B -->  one for each text in column B
//! <!-- figure NAME: bars, log; value: LABEL; columns: A | B -->                    a group of bars for each row
//! ```
//!
//! `log` makes the values' axis logarithmic. The page must also contain `![...](figures/NAME.svg)`.
//! If several columns have the same name, the first is used. A row without a number there is not
//! drawn, nor is a curve of one point. Values that an axis cannot show are refused: negative
//! values, only zeros, and 0 on a logarithmic axis.

use crate::{
    chart::{self, Chart, Group, Shape},
    files::{self, File},
    Result,
};
use std::{fs, path::Path};

const PAGES: &str = "docs/policies/";
const FIGURES: &str = "docs/policies/figures/";
const BEGINS: &str = "<!-- figure ";

/// `cargo xtask figures`.
pub fn write(root: &Path) -> Result {
    fs::create_dir_all(root.join(FIGURES)).map_err(|e| format!("cannot make {FIGURES}: {e}"))?;
    for (path, text) in drawn(&files::list(root)?)? {
        fs::write(root.join(&path), text).map_err(|e| format!("cannot write {path}: {e}"))?;
        println!("{path} written");
    }
    Ok(())
}

/// Fails when a figure in the tree differs from its table, or belongs to no table.
pub fn check(root: &Path) -> Result {
    let files = files::list(root)?;
    let drawn = drawn(&files)?;
    let committed: Vec<&File> = files
        .iter()
        .filter(|file| file.path.starts_with(FIGURES))
        .collect();
    let mut found = Vec::new();
    for (path, text) in &drawn {
        if !committed
            .iter()
            .any(|file| file.path == *path && file.text == *text)
        {
            found.push(format!(
                "{path} is not what the table of its page gives: run `cargo xtask figures`"
            ));
        }
    }
    let stray = committed
        .iter()
        .filter(|file| !drawn.iter().any(|(path, _)| *path == file.path));
    found.extend(stray.map(|file| format!("{} belongs to no table: remove it", file.path)));
    if found.is_empty() {
        Ok(())
    } else {
        Err(found.join("\n"))
    }
}

/// Paths and texts of all figures.
fn drawn(files: &[File]) -> Result<Vec<(String, String)>> {
    let mut drawn = Vec::new();
    for page in files
        .iter()
        .filter(|file| file.path.starts_with(PAGES) && file.extension() == "md")
    {
        for (number, line) in page
            .text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.starts_with(BEGINS))
        {
            let place = |message| format!("{}:{}: {message}", page.path, number + 1);
            let table: Vec<Vec<&str>> = page
                .text
                .lines()
                .skip(number + 1)
                .skip_while(|line| line.is_empty())
                .map_while(|line| {
                    Some(
                        line.strip_prefix('|')?
                            .strip_suffix('|')?
                            .split('|')
                            .map(str::trim)
                            .collect(),
                    )
                })
                .collect();
            let (name, chart) = chart_of(line, &table).map_err(place)?;
            if !page.text.contains(&format!("](figures/{name}.svg)")) {
                return Err(place(format!("the page does not show figures/{name}.svg")));
            }
            drawn.push((
                format!("{FIGURES}{name}.svg"),
                chart::svg(&chart).map_err(place)?,
            ));
        }
    }
    Ok(drawn)
}

/// Parses the comment above a table: the figure's name, and the chart.
fn chart_of(comment: &str, table: &[Vec<&str>]) -> Result<(String, Chart)> {
    let said = comment
        .strip_prefix(BEGINS)
        .and_then(|rest| rest.strip_suffix(" -->"));
    let (name, said) = said
        .and_then(|said| said.split_once(": "))
        .ok_or("a figure is `<!-- figure NAME: ... -->`")?;
    let mut parts = said.split("; ");
    let (shape, logarithmic) = match parts.next() {
        Some("lines") => ("lines", false),
        Some("lines, log") => ("lines", true),
        Some("bars") => ("bars", false),
        Some("bars, log") => ("bars", true),
        other => {
            return Err(format!(
                "a figure is `lines` or `bars`, with or without `, log`, not `{}`",
                other.unwrap_or("")
            ))
        }
    };
    let parts: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once(": ")).collect();
    let part = |key: &str| parts.iter().find(|part| part.0 == key).map(|part| part.1);
    let needed =
        |key: &str| part(key).ok_or_else(|| format!("the figure does not say `{key}: ...`"));
    let [head, _, rows @ ..] = table else {
        return Err("no table follows the figure".into());
    };
    let column = |title: &str| {
        head.iter()
            .position(|cell| *cell == title)
            .ok_or_else(|| format!("the table has no column `{title}`"))
    };
    let names: Vec<&str> = needed("columns")?.split(" | ").collect();
    let columns = names
        .iter()
        .map(|name| column(name))
        .collect::<Result<Vec<usize>>>()?;
    let cell = |row: &[&str], column: usize| {
        row.get(column)
            .map(|cell| (*cell).to_owned())
            .unwrap_or_default()
    };
    let number = |row: &[&str], column: usize, logarithmic: bool| {
        let text = cell(row, column);
        let number = number(&text);
        let can_be_drawn = number.is_none_or(|number| {
            number.is_finite() && number >= 0.0 && !(logarithmic && number == 0.0)
        });
        if can_be_drawn {
            Ok(number)
        } else {
            Err(format!(
                "`{text}` in column `{}`, row `{}`, cannot be drawn",
                head[column],
                cell(row, 0)
            ))
        }
    };
    let shape = if shape == "lines" {
        let over = column(needed("over")?)?;
        let by = part("by").map(column).transpose()?;
        let mut curves: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for row in rows {
            for (name, &column) in names.iter().zip(&columns) {
                let name = by.map_or((*name).to_owned(), |by| cell(row, by));
                let (Some(x), Some(y)) =
                    (number(row, over, false)?, number(row, column, logarithmic)?)
                else {
                    continue;
                };
                match curves.iter_mut().find(|curve| curve.0 == name) {
                    Some(curve) => curve.1.push((x, y)),
                    None => curves.push((name, vec![(x, y)])),
                }
            }
        }
        curves.retain(|curve| curve.1.len() > 1);
        Shape::Lines {
            over: head[over].to_owned(),
            curves,
        }
    } else {
        let mut groups = Vec::new();
        for row in rows {
            let bar = |&column: &usize| {
                Ok(number(row, column, logarithmic)?.map(|number| (number, cell(row, column))))
            };
            let bars: Vec<_> = columns.iter().map(bar).collect::<Result<_>>()?;
            groups.extend(bars.into_iter().collect::<Option<_>>().map(|bars| Group {
                name: cell(row, 0),
                bars,
            }));
        }
        Shape::Bars {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            groups,
        }
    };
    let chart = Chart {
        value: needed("value")?.to_owned(),
        logarithmic,
        shape,
    };
    if chart.values().iter().any(|value| *value > 0.0) {
        Ok((name.to_owned(), chart))
    } else {
        Err(format!(
            "no row of the table has a number above 0 to draw in the columns `{}`",
            names.join(" | ")
        ))
    }
}

/// Parses a number of a table, such as 1,234.5.
fn number(cell: &str) -> Option<f64> {
    cell.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Vec<Vec<&str>> {
        text.lines()
            .map(|line| line.split('|').map(str::trim).collect())
            .collect()
    }

    #[test]
    fn a_curve_for_each_column() {
        let rows =
            table("load, % | eevdf | share | mine\n - \n 50 | 695 | 1 | 8.7\n 80 | 1,681 | 1 | 8");
        let (name, chart) = chart_of(
            "<!-- figure f: lines, log; value: p99, us; over: load, %; columns: eevdf | mine -->",
            &rows,
        )
        .unwrap();
        let curves = vec![
            ("eevdf".into(), vec![(50.0, 695.0), (80.0, 1681.0)]),
            ("mine".into(), vec![(50.0, 8.7), (80.0, 8.0)]),
        ];
        let shape = Shape::Lines {
            over: "load, %".into(),
            curves,
        };
        assert_eq!(
            (name.as_str(), chart),
            (
                "f",
                Chart {
                    value: "p99, us".into(),
                    logarithmic: true,
                    shape
                }
            )
        );
    }

    #[test]
    fn a_curve_for_each_text_of_a_column() {
        let rows = table(
            "way | load | p99 | p99\n-\na | 50 | 1 | 9\nb | 50 | 2 | 9\na | 80 | 3 | 9\nb | 80 | 4 \
             | 9\nc | 80 | 5 | 9",
        );
        let (_, chart) = chart_of(
            "<!-- figure f: lines; value: us; over: load; columns: p99; by: way -->",
            &rows,
        )
        .unwrap();
        let curves = vec![
            ("a".into(), vec![(50.0, 1.0), (80.0, 3.0)]),
            ("b".into(), vec![(50.0, 2.0), (80.0, 4.0)]),
        ];
        assert_eq!(
            chart.shape,
            Shape::Lines {
                over: "load".into(),
                curves
            }
        );
    }

    #[test]
    fn bars_of_the_rows_that_have_numbers() {
        let rows = table(" | p50 | p99\n-\nsimulated | | \neevdf | 201.7 | 1,005");
        let (_, chart) = chart_of(
            "<!-- figure f: bars, log; value: us; columns: p50 | p99 -->",
            &rows,
        )
        .unwrap();
        let bars = vec![(201.7, "201.7".into()), (1005.0, "1,005".into())];
        let groups = vec![Group {
            name: "eevdf".into(),
            bars,
        }];
        assert_eq!(
            chart.shape,
            Shape::Bars {
                names: vec!["p50".into(), "p99".into()],
                groups
            }
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let check = |comment: &str, rows: &str, expected: &str| {
            let message = chart_of(comment, &table(rows)).unwrap_err();
            assert!(message.contains(expected), "{message}");
        };
        check("<!-- figure f -->", "", "<!-- figure NAME");
        check("<!-- figure f: pie -->", "a\n-\n1", "not `pie`");
        check(
            "<!-- figure f: bars; value: us; columns: a -->",
            "",
            "no table",
        );
        check(
            "<!-- figure f: bars; value: us; columns: b -->",
            "a\n-\n1",
            "no column `b`",
        );
        check(
            "<!-- figure f: bars; columns: a -->",
            "a\n-\n1",
            "value: ...",
        );
        let bars = "<!-- figure f: bars, log; value: us; columns: b -->";
        check(
            bars,
            "a | b\n-\nx | 1\ny | 0",
            "`0` in column `b`, row `y`,",
        );
        check(
            bars,
            "a | b\n-\nx | 1\ny | NaN",
            "`NaN` in column `b`, row `y`,",
        );
        check(bars, "a | b\n-\nx | ", "no row");
        check(bars, "a | b\n-", "no row");
        check(
            "<!-- figure f: bars; value: us; columns: b -->",
            "a | b\n-\nx | -1",
            "`-1` in column `b`",
        );
        check(
            "<!-- figure f: bars; value: us; columns: b -->",
            "a | b\n-\nx | 0",
            "no row",
        );
        let lines = "<!-- figure f: lines, log; value: us; over: a; columns: b -->";
        check(
            lines,
            "a | b\n-\n1 | 2\n2 | inf",
            "`inf` in column `b`, row `2`,",
        );
        check(lines, "a | b\n-\ninf | 2\n2 | 3", "`inf` in column `a`,");
        check(lines, "a | b\n-\n1 | 2", "no row");
    }

    #[test]
    fn a_page_shows_its_figures() {
        let page = |text: &str| {
            [File {
                path: "docs/policies/a.md".into(),
                text: text.into(),
            }]
        };
        let text =
            "<!-- figure a: bars; value: us; columns: b -->\n\n| | b |\n| - | - |\n| x | 1 |\n";
        assert!(drawn(&page(text))
            .unwrap_err()
            .starts_with("docs/policies/a.md:1: "));
        let drawn = drawn(&page(&format!("{text}\n![b](figures/a.svg)\n"))).unwrap();
        assert!(
            drawn.len() == 1
                && drawn[0].0 == "docs/policies/figures/a.svg"
                && drawn[0].1.contains("<svg")
        );
    }
}
