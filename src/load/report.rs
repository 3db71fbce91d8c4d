//! A run as one HTML file that needs no network.

use std::fmt::Write;

use super::history::Record;
use super::summary::{Quantiles, Summary};

/// One second of a run.
#[derive(Default, Clone)]
struct Second {
    answers: u64,
    visible: u64,
    durations: Vec<u64>,
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 56.0;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2733; --paper: #fff; --soft: #5b6875; --line: #d4dae0; --a: #1464b4; --b: #b45014;
        --fault: #a0283c; --good: #1b7a3d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --paper: #14191f; --soft: #97a3af; --line: #333d47; --a: #6ab0f3;
        --b: #f0a35e; --fault: #f27d8f; --good: #67d08b; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1040px; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .25rem 1rem .25rem 0; vertical-align: top; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); } .a { stroke: var(--a); fill: none; stroke-width: 1.5; } .b { stroke: var(--b); fill: none;
        stroke-width: 1.5; } .fault { stroke: var(--fault); stroke-opacity: .55; }
.verdict { font-weight: 700; } .good { color: var(--good); } .bad { color: var(--fault); }
.key-a { color: var(--a); } .key-b { color: var(--b); } .key-f { color: var(--fault); }
";

/// The page.
pub fn html(records: &[Record], summary: &Summary) -> String {
    let seconds = by_second(records);
    let faults = faults(records);
    let good = summary.verdict.violations.is_empty();
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>ticket-ledger load test</title><style>{STYLE}</style><h1>ticket-ledger load test</h1>\
         <p class=\"verdict {}\">{}</p>",
        if good { "good" } else { "bad" },
        if good {
            "No violation.".to_owned()
        } else {
            format!("{} violations.", summary.verdict.violations.len())
        }
    );
    page.push_str(&table(summary));
    let rates: Vec<f64> = seconds.iter().map(|second| second.answers as f64).collect();
    let visible: Vec<f64> = seconds.iter().map(|second| second.visible as f64).collect();
    page.push_str(
        "<h2>Answers per second</h2><p><span class=\"key-a\">answers</span>, \
        <span class=\"key-b\">calls whose client saw something else</span>, <span class=\"key-f\">faults</span></p>",
    );
    page.push_str(&chart(
        "Answers per second over time",
        &rates,
        &visible,
        &faults,
        seconds.len(),
    ));
    let quantiles: Vec<Quantiles> = seconds
        .into_iter()
        .map(|second| Quantiles::of(second.durations))
        .collect();
    let p50: Vec<f64> = quantiles.iter().map(|quantiles| quantiles.p50).collect();
    let p99: Vec<f64> = quantiles.iter().map(|quantiles| quantiles.p99).collect();
    page.push_str(
        "<h2>Latency of answered calls, in milliseconds</h2><p><span class=\"key-a\">median</span>, \
        <span class=\"key-b\">99th percentile</span>, <span class=\"key-f\">faults</span></p>",
    );
    page.push_str(&chart("Latency over time", &p50, &p99, &faults, quantiles.len()));
    if !good {
        page.push_str("<h2>Violations</h2><table>");
        for violation in summary.verdict.violations.iter().take(200) {
            let _ = write!(
                page,
                "<tr><th>rule {}</th><td>{}</td><td>{}</td></tr>",
                violation.rule,
                escape(&violation.request),
                escape(&violation.found)
            );
        }
        page.push_str("</table>");
    }
    page.push_str("</html>\n");
    page
}

fn table(summary: &Summary) -> String {
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        let parts: Vec<_> = counts
            .iter()
            .map(|(name, count)| format!("{} {count}", escape(name)))
            .collect();
        parts.join(", ")
    };
    let latency = &summary.latency_ms;
    let rows = [
        ("Seed", summary.seed.to_string()),
        ("Calls", format!("{} in {:.1} s", summary.calls, summary.seconds)),
        ("Requests", summary.verdict.requests.to_string()),
        ("Answers", list(&summary.answers)),
        (
            "No answer",
            format!(
                "{} lost, {} whose caller left or was cut off",
                summary.lost, summary.left
            ),
        ),
        (
            "Replays",
            format!(
                "{}, of which {} waited for the first answer",
                summary.replays, summary.joins
            ),
        ),
        ("Takeovers", summary.takeovers.to_string()),
        ("Faults", list(&summary.faults)),
        ("Visible to clients", summary.visible.to_string()),
        (
            "Latency",
            format!(
                "p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, longest {:.1} ms",
                latency.p50, latency.p90, latency.p99, latency.max
            ),
        ),
    ];
    let mut table = String::from("<table>");
    for (name, value) in rows {
        let _ = write!(table, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
    }
    table.push_str("</table>");
    table
}

fn by_second(records: &[Record]) -> Vec<Second> {
    let mut invoked = std::collections::HashMap::new();
    let mut seconds: Vec<Second> = Vec::new();
    let mut at = |at_us: u64, note: &mut dyn FnMut(&mut Second)| {
        let place = usize::try_from(at_us / 1_000_000).unwrap_or(0);
        if seconds.len() <= place {
            seconds.resize(place + 1, Second::default());
        }
        if let Some(second) = seconds.get_mut(place) {
            note(second);
        }
    };
    for record in records {
        match record {
            Record::Invoked { call, at_us, .. } => {
                invoked.insert(*call, *at_us);
            }
            Record::Answered {
                call, at_us, outcome, ..
            } => {
                let took = invoked.get(call).map(|sent| at_us.saturating_sub(*sent));
                at(*at_us, &mut |second| {
                    second.answers += 1;
                    second.durations.extend(took);
                    second.visible += u64::from(matches!(outcome.as_str(), "unavailable" | "none"));
                });
            }
            Record::Lost { at_us, cut: false, .. } => at(*at_us, &mut |second| second.visible += 1),
            _ => {}
        }
    }
    seconds
}

fn faults(records: &[Record]) -> Vec<(f64, String)> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Fault {
                at_us,
                fault,
                target,
                phase,
            } if phase != "end" => Some((
                *at_us as f64 / 1e6,
                format!("{fault}, {target}, at {:.1} s", *at_us as f64 / 1e6),
            )),
            _ => None,
        })
        .collect()
}

fn chart(title: &str, a: &[f64], b: &[f64], faults: &[(f64, String)], seconds: usize) -> String {
    let most = a.iter().chain(b).copied().fold(1.0, f64::max);
    let span = (seconds.max(2) - 1) as f64;
    let x = |second: f64| LEFT + second / span * (WIDTH - LEFT - 8.0);
    let y = |value: f64| HEIGHT - 24.0 - value / most * (HEIGHT - 40.0);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">");
    for share in [0.0, 0.5, 1.0] {
        let level = y(most * share);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{level:.1}\" y2=\"{level:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>",
            LEFT - 6.0,
            level + 4.0,
            most * share
        );
    }
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0} s</text>",
            x(span * share).min(WIDTH - 14.0),
            HEIGHT - 6.0,
            span * share
        );
    }
    for (at, what) in faults {
        let place = x(at.min(span));
        let _ = write!(
            svg,
            "<line class=\"fault\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"16\" y2=\"{:.1}\"><title>{}</title></line>",
            HEIGHT - 24.0,
            escape(what)
        );
    }
    for (class, values) in [("a", a), ("b", b)] {
        let points: Vec<_> = values
            .iter()
            .enumerate()
            .map(|(second, value)| format!("{:.1},{:.1}", x(second as f64), y(*value)))
            .collect();
        let _ = write!(svg, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }
    svg.push_str("</svg>");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
