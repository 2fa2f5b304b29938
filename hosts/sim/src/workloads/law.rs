// SPDX-License-Identifier: GPL-2.0-only
//! Distributions that a spec selects by name, each with mean 1.

use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;

use crate::rng::Rng;

/// A distribution of positive numbers with mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Always 1.
    Constant,
    /// Uniform from 0 to 2.
    Uniform,
    /// Exponential: the gaps of a Poisson process.
    Exponential,
    /// Lognormal, with this standard deviation of the underlying normal distribution.
    Lognormal(f64),
    /// Pareto with this index: the smaller the index, the heavier the tail. It is greater than 1,
    /// as there would be no mean otherwise.
    Pareto(f64),
}

/// The names that [`Law`] parses.
pub const LAWS: &str = "constant, uniform, exponential, lognormal/SIGMA, pareto/INDEX";

impl Law {
    /// Draws a number.
    pub fn draw(self, rng: &mut Rng) -> f64 {
        // Never 0, which has no logarithm.
        let mut unit = || 1.0 - rng.unit();
        match self {
            Self::Constant => 1.0,
            Self::Uniform => 2.0 * unit(),
            Self::Exponential => -libm::log(unit()),
            Self::Lognormal(sigma) => {
                // The Box-Muller transform.
                let normal = libm::sqrt(-2.0 * libm::log(unit())) * libm::cos(TAU * unit());
                libm::exp(sigma * normal - sigma * sigma / 2.0)
            }
            Self::Pareto(index) => (index - 1.0) / index * libm::exp(-libm::log(unit()) / index),
        }
    }
}

impl FromStr for Law {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text
            .split_once('/')
            .map_or((text, None), |(name, number)| (name, Some(number)));
        let number = number.map(|number| {
            number
                .parse::<f64>()
                .map_err(|_| format!("'{number}' is no number"))
        });
        match (name, number.transpose()?) {
            ("constant", None) => Ok(Self::Constant),
            ("uniform", None) => Ok(Self::Uniform),
            ("exponential", None) => Ok(Self::Exponential),
            ("lognormal", Some(sigma)) if (0.01..=5.0).contains(&sigma) => {
                Ok(Self::Lognormal(sigma))
            }
            ("pareto", Some(index)) if (1.01..=100.0).contains(&index) => Ok(Self::Pareto(index)),
            ("lognormal", _) => Err("lognormal takes a sigma from 0.01 to 5: lognormal/1".into()),
            ("pareto", _) => Err("pareto takes an index from 1.01 to 100: pareto/1.5".into()),
            _ => Err(format!("'{text}' is none of {LAWS}")),
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Uniform => f.write_str("uniform"),
            Self::Exponential => f.write_str("exponential"),
            Self::Lognormal(sigma) => write!(f, "lognormal/{sigma}"),
            Self::Pareto(index) => write!(f, "pareto/{index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_have_mean_one_and_their_spread() {
        let check = |text: &str, variance: f64| {
            let law: Law = text.parse().unwrap();
            assert_eq!(law.to_string(), text);
            let (mut rng, count) = (Rng::new(3, 1), 400_000);
            let drawn: Vec<f64> = (0..count).map(|_| law.draw(&mut rng)).collect();
            assert!(drawn
                .iter()
                .all(|&number| number > 0.0 && number.is_finite()));
            let mean = drawn.iter().sum::<f64>() / f64::from(count);
            let square = drawn
                .iter()
                .map(|number| (number - mean).powi(2))
                .sum::<f64>()
                / f64::from(count);
            assert!((mean - 1.0).abs() < 0.01, "{text}: mean {mean}");
            assert!(
                (square - variance).abs() < 0.05 * variance + 1e-9,
                "{text}: variance {square} for {variance}"
            );
        };
        check("constant", 0.0);
        check("uniform", 1.0 / 3.0);
        check("exponential", 1.0);
        check("lognormal/0.5", (0.25_f64).exp() - 1.0);
        check("pareto/5", 1.0 / 15.0);
    }

    #[test]
    fn what_is_no_law_is_refused() {
        for text in [
            "",
            "normal",
            "constant/1",
            "lognormal",
            "lognormal/9",
            "pareto/1",
            "pareto/x",
            "exponential/2",
        ] {
            assert!(text.parse::<Law>().is_err(), "{text}");
        }
    }
}
