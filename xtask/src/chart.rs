// SPDX-License-Identifier: GPL-2.0-only
//! Draws a chart as SVG: curves, or groups of horizontal bars. The background is white, so that the
//! chart is readable on a dark page, too.

use crate::Result;
use plotters::{
    coord::ranged1d::{AsRangedCoord, ValueFormatter},
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::ops::Range;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Pixels.
const WIDTH: u32 = 760;
/// Height of curves with their axis; each group of bars adds to it.
const HEIGHT: u32 = 340;
const LEGEND: u32 = 180;
const MARGIN: u32 = 14;
const AXIS: u32 = 48;
const BAR: u32 = 18;
/// Gap between two groups of bars.
const GAP: u32 = 12;
/// Width of the names of groups of bars.
const NAMES: u32 = 210;
/// Plotters makes 13 pixels of these 16.
const FONT: (&str, i32) = ("sans-serif", 16);
/// Colours that most people can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
];
const PALE: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// A chart.
#[derive(Debug, PartialEq)]
pub struct Chart {
    /// Label of the values, with their unit.
    pub value: String,
    /// Whether the values' axis is logarithmic; otherwise it begins at 0.
    pub logarithmic: bool,
    pub shape: Shape,
}

/// The shape of a chart.
#[derive(Debug, PartialEq)]
pub enum Shape {
    /// Curves over a number.
    Lines {
        /// Label of that number, with its unit.
        over: String,
        /// Names, and points in order.
        curves: Vec<(String, Vec<(f64, f64)>)>,
    },
    /// Groups of bars; each group has one bar for each name.
    Bars {
        names: Vec<String>,
        groups: Vec<Group>,
    },
}

/// Adjacent bars.
#[derive(Debug, PartialEq)]
pub struct Group {
    pub name: String,
    /// One for each name: the value, and its text.
    pub bars: Vec<(f64, String)>,
}

impl Chart {
    pub fn values(&self) -> Vec<f64> {
        match &self.shape {
            Shape::Lines { curves, .. } => curves
                .iter()
                .flat_map(|(_, points)| points)
                .map(|point| point.1)
                .collect(),
            Shape::Bars { groups, .. } => groups
                .iter()
                .flat_map(|group| &group.bars)
                .map(|bar| bar.0)
                .collect(),
        }
    }
}

/// The chart as the text of a file.
pub fn svg(chart: &Chart) -> Result<String> {
    let mut text = String::new();
    let height = match &chart.shape {
        Shape::Lines { .. } => HEIGHT,
        Shape::Bars { names, groups } => {
            2 * MARGIN + AXIS + groups.len() as u32 * (names.len() as u32 * BAR + GAP)
        }
    };
    draw(
        chart,
        SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area(),
    )
    .map_err(|e| format!("a figure cannot be drawn: {e}"))?;
    Ok(text)
}

fn draw(chart: &Chart, root: Area<'_>) -> Drawn {
    root.fill(&WHITE)?;
    let (plot, legend) = root.split_horizontally(WIDTH - LEGEND);
    let range = range(chart);
    let names: Vec<&str> = match &chart.shape {
        Shape::Lines { over, curves } => {
            if chart.logarithmic {
                lines(&plot, &chart.value, range.log_scale(), over, curves)?
            } else {
                lines(&plot, &chart.value, range, over, curves)?
            }
            curves.iter().map(|(name, _)| name.as_str()).collect()
        }
        Shape::Bars { names, groups } => {
            let from = range.start;
            if chart.logarithmic {
                bars(&plot, &chart.value, range.log_scale(), from, groups)?
            } else {
                bars(&plot, &chart.value, range, from, groups)?
            }
            names.iter().map(String::as_str).collect()
        }
    };
    for (nr, name) in names.into_iter().enumerate() {
        let y = (MARGIN + 22 * nr as u32) as i32;
        legend.draw(&Rectangle::new(
            [(4, y), (18, y + 12)],
            COLOURS[nr % COLOURS.len()].filled(),
        ))?;
        legend.draw(&Text::new(name.to_owned(), (26, y), FONT))?;
    }
    root.present()
}

/// The range of the values' axis: whole powers of ten, or from 0 to a tenth more than the largest.
fn range(chart: &Chart) -> Range<f64> {
    let values = chart.values();
    let (least, most) = (
        values.iter().copied().fold(f64::MAX, f64::min),
        values.iter().copied().fold(0.0, f64::max),
    );
    if chart.logarithmic {
        10f64.powf(least.log10().floor())..10f64.powf(most.log10().floor() + 1.0)
    } else {
        0.0..most * 1.1
    }
}

fn lines<Y>(
    plot: &Area<'_>,
    value: &str,
    y: Y,
    over: &str,
    curves: &[(String, Vec<(f64, f64)>)],
) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let xs = || {
        curves
            .iter()
            .flat_map(|(_, points)| points)
            .map(|point| point.0)
    };
    let x = xs().fold(f64::MAX, f64::min)..xs().fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(plot)
        .margin(MARGIN)
        .x_label_area_size(AXIS)
        .y_label_area_size(AXIS + 32)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc(over)
        .y_desc(value)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .bold_line_style(PALE)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| short(*y))
        .draw()?;
    for (nr, (_, points)) in curves.iter().enumerate() {
        let colour = COLOURS[nr % COLOURS.len()];
        chart.draw_series(LineSeries::new(
            points.iter().copied(),
            colour.stroke_width(2),
        ))?;
        chart.draw_series(
            points
                .iter()
                .map(|&point| Circle::new(point, 3, colour.filled())),
        )?;
    }
    Ok(())
}

fn bars<X>(plot: &Area<'_>, value: &str, x: X, from: f64, groups: &[Group]) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(plot)
        .margin(MARGIN)
        .margin_right(60)
        .x_label_area_size(AXIS)
        .y_label_area_size(NAMES)
        .build_cartesian_2d(x, groups.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .x_desc(value)
        .label_style(FONT)
        .axis_desc_style(FONT)
        .bold_line_style(PALE)
        .light_line_style(TRANSPARENT)
        .disable_y_mesh()
        .y_labels(0)
        .x_label_formatter(&|x| short(*x))
        .draw()?;
    let font = FONT.into_text_style(plot);
    for (nr, group) in groups.iter().enumerate() {
        // Each group is 1 high.
        let thickness = f64::from(BAR) / f64::from(group.bars.len() as u32 * BAR + GAP);
        let top = nr as f64 + (1.0 - thickness * group.bars.len() as f64) / 2.0;
        let (_, middle) = chart.backend_coord(&(from, nr as f64 + 0.5));
        let name = font.pos(Pos::new(HPos::Right, VPos::Center));
        plot.draw(&Text::new(
            group.name.clone(),
            ((MARGIN + NAMES) as i32 - 8, middle),
            name,
        ))?;
        for (bar, (length, text)) in group.bars.iter().enumerate() {
            let (above, below) = (
                top + thickness * bar as f64,
                top + thickness * (bar as f64 + 1.0),
            );
            let colour = COLOURS[bar % COLOURS.len()].filled();
            chart.draw_series([Rectangle::new([(from, above), (*length, below)], colour)])?;
            let (end, middle) = chart.backend_coord(&(*length, (above + below) / 2.0));
            let number = font.pos(Pos::new(HPos::Left, VPos::Center));
            plot.draw(&Text::new(text.clone(), (end + 5, middle), number))?;
        }
    }
    Ok(())
}

/// Formats a number of an axis as tables do: 10,000 and 0.5.
fn short(number: f64) -> String {
    let rounded = (number * 1e3).round() / 1e3;
    let text = rounded.to_string();
    let (whole, rest) = text
        .split_once('.')
        .map_or((&*text, String::new()), |(whole, rest)| {
            (whole, format!(".{rest}"))
        });
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_axes() {
        let check = |number, expected| assert_eq!(short(number), expected);
        check(0.0, "0");
        check(0.30000000000000004, "0.3");
        check(999.9999999999, "1,000");
        check(1_234_567.0, "1,234,567");
    }

    #[test]
    fn a_bar_is_as_long_as_its_number() {
        let bar = |value: f64| Group {
            name: format!("of {value}"),
            bars: vec![(value, value.to_string())],
        };
        let chart = |groups| Chart {
            value: "us".into(),
            logarithmic: false,
            shape: Shape::Bars {
                names: vec!["p99".into()],
                groups,
            },
        };
        let svg = svg(&chart(vec![bar(10.0), bar(20.0)])).unwrap();
        let lengths: Vec<u32> = svg
            .lines()
            .filter(|line| line.starts_with("<rect") && line.contains("height=\"18\""))
            .filter_map(|line| {
                line.split("width=\"")
                    .nth(1)?
                    .split('"')
                    .next()?
                    .parse()
                    .ok()
            })
            .collect();
        assert_eq!(lengths.len(), 2, "{svg}");
        assert!(lengths[1].abs_diff(2 * lengths[0]) <= 1, "{lengths:?}");
        assert!(
            svg.contains("of 20") && svg.contains("p99") && svg.contains("us"),
            "{svg}"
        );
    }

    #[test]
    fn powers_of_ten() {
        let points = vec![(50.0, 7.7), (80.0, 695.0)];
        let shape = Shape::Lines {
            over: "load, %".into(),
            curves: vec![("eevdf".into(), points)],
        };
        let chart = Chart {
            value: "us".into(),
            logarithmic: true,
            shape,
        };
        assert_eq!(range(&chart), 1.0..1000.0);
        let svg = svg(&chart).unwrap();
        assert!(
            svg.contains("<polyline") && svg.contains("\n100\n"),
            "{svg}"
        );
    }
}
