//! From values of rounds to a table and a JSON file.

use std::fmt::Write as _;

use serde::Serialize;

use crate::server::Kind;

/// One figure of one server, all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    scenario: String,
    figure: &'static str,
    server: Kind,
    /// In the order of the rounds.
    rounds: Vec<f64>,
    median: f64,
    least: f64,
    most: f64,
    /// The gateway's median through this one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_ratio: Option<f64>,
}

/// Everything that was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// Counts that the run was started with.
    pub(crate) run: serde_json::Value,
    figures: Vec<Figure>,
    /// What the project promises, and whether it held.
    targets: Vec<Verdict>,
}

/// A promise.
#[derive(Debug, Serialize)]
struct Verdict {
    what: String,
    value: f64,
    most: f64,
    holds: bool,
}

impl Report {
    /// Adds what one round measured.
    pub(crate) fn add(&mut self, scenario: &str, server: Kind, values: &[(&'static str, f64)]) {
        for (name, value) in values {
            let is = |figure: &&mut Figure| {
                figure.scenario == scenario && figure.figure == *name && figure.server == server
            };
            match self.figures.iter_mut().find(is) {
                Some(figure) => figure.rounds.push(*value),
                None => self.figures.push(Figure {
                    scenario: scenario.to_owned(),
                    figure: name,
                    server,
                    rounds: vec![*value],
                    median: 0.0,
                    least: 0.0,
                    most: 0.0,
                    gateway_ratio: None,
                }),
            }
        }
    }

    fn median(&self, scenario: &str, figure: &str, server: Kind) -> Option<f64> {
        let is = |f: &&Figure| f.scenario == scenario && f.figure == figure && f.server == server;
        self.figures.iter().find(is).map(|figure| figure.median)
    }

    /// Medians, spread, ratios; then the promises. A figure that was not measured has no verdict.
    pub(crate) fn finish(&mut self, promises: &[Promise]) {
        for figure in &mut self.figures {
            let mut sorted = figure.rounds.clone();
            sorted.sort_by(f64::total_cmp);
            let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
            let middle = sorted.len() / 2;
            figure.median = if sorted.len() % 2 == 1 {
                at(middle)
            } else {
                f64::midpoint(at(middle.wrapping_sub(1)), at(middle))
            };
            (figure.least, figure.most) = (at(0), at(sorted.len().wrapping_sub(1)));
        }
        let ratios: Vec<Option<f64>> = self
            .figures
            .iter()
            .map(|figure| {
                let gateway = self.median(&figure.scenario, figure.figure, Kind::Gateway)?;
                (figure.server != Kind::Gateway && figure.median != 0.0).then_some(gateway / figure.median)
            })
            .collect();
        for (figure, ratio) in self.figures.iter_mut().zip(ratios) {
            figure.gateway_ratio = ratio;
        }
        for promise in promises {
            let Some(over) = self.median(promise.scenario, promise.figure, promise.server) else { continue };
            let value = match promise.under {
                None => over,
                Some((scenario, server)) => match self.median(scenario, promise.figure, server) {
                    Some(under) => over / under,
                    None => continue,
                },
            };
            let holds = value <= promise.most;
            self.targets.push(Verdict { what: promise.what.to_owned(), value, most: promise.most, holds });
        }
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<15} {:<32} {:<18} {:>11} {:>11} {:>11}  {}\n",
            "measurement", "figure", "server", "median", "least", "most", "gateway is"
        );
        for f in &self.figures {
            let ratio = f.gateway_ratio.map(|ratio| format!("{ratio:.2} of it")).unwrap_or_default();
            let (median, least, most) = (number(f.median), number(f.least), number(f.most));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<15} {:<32} {:<18} {median:>11} {least:>11} {most:>11}  {ratio}",
                f.scenario,
                f.figure,
                f.server.name()
            );
        }
        if !self.targets.is_empty() {
            let _ = writeln!(text, "\n{:<66} {:>9} {:>9}", "promise", "is", "at most");
        }
        for v in &self.targets {
            let held = if v.holds { "holds" } else { "DOES NOT HOLD" };
            let _ = writeln!(text, "{:<66} {:>9} {:>9}  {held}", v.what, number(v.value), number(v.most));
        }
        text
    }
}

/// A figure, or the ratio of the same figure of two servers, that is to be at most so large.
#[derive(Debug)]
pub(crate) struct Promise {
    pub(crate) what: &'static str,
    pub(crate) scenario: &'static str,
    pub(crate) figure: &'static str,
    pub(crate) server: Kind,
    /// What it is divided by.
    pub(crate) under: Option<(&'static str, Kind)>,
    pub(crate) most: f64,
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ratios_and_promises() {
        let mut report = Report::default();
        for (gateway, bare) in [(30.0, 10.0), (10.0, 10.0), (20.0, 40.0)] {
            report.add("chat", Kind::Gateway, &[("cpu", gateway)]);
            report.add("chat", Kind::TokioWebsockets, &[("cpu", bare)]);
        }
        let promise = |most, under| Promise {
            what: "p",
            scenario: "chat",
            figure: "cpu",
            server: Kind::Gateway,
            under,
            most,
        };
        let bare = Some(("chat", Kind::TokioWebsockets));
        let unmeasured = Some(("chat", Kind::PythonWebsockets));
        report.finish(&[
            promise(2.0, bare),
            promise(1.9, bare),
            promise(19.0, None),
            promise(1.0, unmeasured),
        ]);
        let [gateway, other] = report.figures.as_slice() else { panic!("two figures") };
        assert_eq!((gateway.median, gateway.least, gateway.most), (20.0, 10.0, 30.0));
        assert_eq!((other.median, other.gateway_ratio), (10.0, Some(2.0)));
        assert_eq!(report.targets.iter().map(|t| t.holds).collect::<Vec<_>>(), [true, false, false]);
        assert!(report.table().contains("DOES NOT HOLD"));
    }

    #[test]
    fn an_even_number_of_rounds_has_a_median_too() {
        let mut report = Report::default();
        for value in [4.0, 1.0] {
            report.add("a", Kind::Gateway, &[("b", value)]);
        }
        report.finish(&[]);
        assert_eq!(report.figures[0].median, 2.5);
    }
}
