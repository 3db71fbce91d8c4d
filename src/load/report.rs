//! A run as one HTML file that needs no network.

use std::fmt::Write;

use super::check::Outcome;
use super::history::Record;
use super::summary::{Quantiles, Summary, counted};

/// One second of a run.
#[derive(Default, Clone)]
struct Second {
    answers: u64,
    visible: u64,
    durations: Vec<u64>,
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 220.0;
/// Room for the names of faults and for numbers.
const LEFT: f64 = 104.0;
const RIGHT: f64 = 20.0;
/// Height of a fault's lane.
const LANE: f64 = 20.0;

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
td { overflow-wrap: anywhere; } code { font-weight: 600; }
.chart { overflow-x: auto; } svg { display: block; width: 100%; min-width: 800px; height: auto; }
svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
.grid { stroke: var(--line); } .a, .b { fill: none; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round; }
.a { stroke: var(--a); } .b { stroke: var(--b); stroke-dasharray: 5 3; } .fault { stroke: var(--fault); stroke-opacity: .25; }
.mark { stroke: var(--fault); stroke-width: 3; }
.verdict { font-weight: 700; } .good { color: var(--good); } .bad { color: var(--fault); }
.key-a { color: var(--a); } .key-b { color: var(--b); } .key-f { color: var(--fault); }
";

/// The page.
pub fn html(records: &[Record], summary: &Summary) -> String {
    let seconds = by_second(records);
    let faults = faults(records);
    let good = summary.outcome == Outcome::Held;
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>ticket-ledger load test</title><style>{STYLE}</style><h1>ticket-ledger load test</h1>\
         <p class=\"verdict {}\">{}</p>",
        if good { "good" } else { "bad" },
        match summary.outcome {
            Outcome::Held => "No violation.".to_owned(),
            Outcome::Broken => format!("{}.", counted(summary.verdict.violations.len() as u64, "violation")),
            Outcome::Incomplete => "No violation so far, and the run did not come to its end.".to_owned(),
            Outcome::Unsettled => format!("{}.", summary.verdict.unsettled()),
            Outcome::Nothing => "Nothing to judge: no call was answered.".to_owned(),
        }
    );
    if summary.outcome == Outcome::Broken {
        violations(&mut page, summary);
    }
    page.push_str(&table(summary));
    charts(&mut page, seconds, &faults);
    page.push_str("</html>\n");
    page
}

fn violations(page: &mut String, summary: &Summary) {
    const MOST_SHOWN: usize = 200;
    let found = &summary.verdict.violations;
    page.push_str("<h2>Violations</h2><table>");
    for violation in found.iter().take(MOST_SHOWN) {
        let _ = write!(
            page,
            "<tr><th scope=\"row\">rule {}</th><td><code>{}</code><br>{}</td></tr>",
            violation.rule,
            escape(&violation.request),
            escape(&violation.found)
        );
    }
    page.push_str("</table>");
    if found.len() > MOST_SHOWN {
        let _ = write!(page, "<p>… and {} more</p>", found.len() - MOST_SHOWN);
    }
    page.push_str("<h2>The run</h2>");
}

fn charts(page: &mut String, seconds: Vec<Second>, faults: &[Struck]) {
    let length = seconds.len();
    let rates: Vec<_> = seconds.iter().map(|second| Some(second.answers as f64)).collect();
    let visible: Vec<_> = seconds.iter().map(|second| Some(second.visible as f64)).collect();
    page.push_str(
        "<h2>Answers per second</h2><p><span class=\"key-a\">— answers</span>, \
        <span class=\"key-b\">╌ calls whose client saw something else</span>, <span class=\"key-f\">| faults</span></p>",
    );
    page.push_str(&chart("Answers per second over time", &rates, &visible, faults, length));
    // A second without an answer has no latency, which is not a latency of nothing.
    let quantiles: Vec<_> = seconds
        .into_iter()
        .map(|second| (!second.durations.is_empty()).then(|| Quantiles::of(second.durations)))
        .collect();
    let p50: Vec<_> = quantiles.iter().map(|of| of.as_ref().map(|of| of.p50)).collect();
    let p99: Vec<_> = quantiles.iter().map(|of| of.as_ref().map(|of| of.p99)).collect();
    page.push_str(
        "<h2>Latency of answered calls, in milliseconds</h2><p><span class=\"key-a\">— median</span>, \
        <span class=\"key-b\">╌ 99th percentile</span>, <span class=\"key-f\">| faults</span></p>",
    );
    page.push_str(&chart("Latency over time", &p50, &p99, faults, length));
    if !faults.is_empty() {
        page.push_str("<h2>Faults</h2>");
        page.push_str(&lanes(faults, length));
    }
}

fn table(summary: &Summary) -> String {
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        let parts: Vec<_> = counts
            .iter()
            .map(|(name, count)| format!("{}\u{a0}{count}", escape(name)))
            .collect();
        parts.join(", ")
    };
    let latency = &summary.latency_ms;
    let rows = [
        ("Tested", escape(&summary.about)),
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
        ("Refused and never done", counted(summary.refused, "request")),
        (
            "Latency",
            format!(
                "p50\u{a0}{:.1}\u{a0}ms, p90\u{a0}{:.1}\u{a0}ms, p99\u{a0}{:.1}\u{a0}ms, longest\u{a0}{:.1}\u{a0}ms",
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

/// A fault: when, its kind, and a sentence.
struct Struck {
    at: f64,
    kind: String,
    what: String,
}

fn faults(records: &[Record]) -> Vec<Struck> {
    records
        .iter()
        .filter_map(|record| match record {
            Record::Fault {
                at_us,
                fault,
                target,
                phase,
            } if phase != "end" => {
                let at = *at_us as f64 / 1e6;
                Some(Struck {
                    at,
                    kind: fault.clone(),
                    what: format!("{fault}, {target}, at {at:.1} s"),
                })
            }
            Record::Acted {
                at_us,
                act,
                entry,
                phase,
                ..
            } if phase == "begin" && !matches!(act.as_str(), "unhide" | "allow-writes") => {
                let at = *at_us as f64 / 1e6;
                let of = entry.as_deref().unwrap_or("all writes");
                Some(Struck {
                    at,
                    kind: act.clone(),
                    what: format!("{act}, {of}, at {at:.1} s"),
                })
            }
            _ => None,
        })
        .collect()
}

/// The step between about four lines that a reader can count in.
fn step(most: f64) -> f64 {
    let rough = (most / 4.0).max(0.25);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough);
    (step.unwrap_or(10.0) * power).max(1.0)
}

/// Lines from 0 to `most`.
fn levels(most: f64) -> impl Iterator<Item = f64> {
    let step = step(most);
    let count = (most / step).floor() as usize;
    (0..=count).map(move |number| number as f64 * step)
}

/// Where seconds lie across a chart.
struct Across(f64);

impl Across {
    fn new(seconds: usize) -> Self {
        Self((seconds.max(2) - 1) as f64)
    }

    fn x(&self, second: f64) -> f64 {
        LEFT + second.min(self.0) / self.0 * (WIDTH - LEFT - RIGHT)
    }

    fn begin(&self, svg: &mut String, title: &str, height: f64) {
        let _ = write!(
            svg,
            "<div class=\"chart\"><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">"
        );
        for second in levels(self.0) {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{second:.0} s</text>",
                self.x(second),
                height - 6.0,
            );
        }
    }
}

fn chart(title: &str, a: &[Option<f64>], b: &[Option<f64>], faults: &[Struck], seconds: usize) -> String {
    let most = a.iter().chain(b).flatten().copied().fold(1.0, f64::max);
    let across = Across::new(seconds);
    let y = |value: f64| HEIGHT - 24.0 - value / most * (HEIGHT - 40.0);
    let mut svg = String::new();
    across.begin(&mut svg, title, HEIGHT);
    for value in levels(most) {
        let level = y(value);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{level:.1}\" y2=\"{level:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>",
            LEFT - 6.0,
            level + 4.0,
        );
    }
    for fault in faults {
        let place = across.x(fault.at);
        let _ = write!(
            svg,
            "<line class=\"fault\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"16\" y2=\"{:.1}\"><title>{}</title></line>",
            HEIGHT - 24.0,
            escape(&fault.what)
        );
    }
    for (class, values) in [("a", a), ("b", b)] {
        let _ = write!(svg, "<path class=\"{class}\" d=\"");
        let mut pen = 'M';
        for (second, value) in values.iter().enumerate() {
            let Some(value) = value else {
                pen = 'M';
                continue;
            };
            let (x, y) = (across.x(second as f64), y(*value));
            let _ = write!(svg, "{pen}{x:.1} {y:.1}");
            if pen == 'M' {
                // A point by itself would not be drawn.
                let _ = write!(svg, "h2");
            }
            pen = 'L';
        }
        svg.push_str("\"/>");
    }
    svg.push_str("</svg></div>");
    svg
}

/// A lane for each kind of fault, below the charts and on their scale.
fn lanes(faults: &[Struck], seconds: usize) -> String {
    let across = Across::new(seconds);
    let kinds: std::collections::BTreeSet<_> = faults.iter().map(|fault| fault.kind.as_str()).collect();
    let height = kinds.len() as f64 * LANE + 24.0;
    let mut svg = String::new();
    across.begin(&mut svg, "Faults over time", height);
    for (number, kind) in kinds.into_iter().enumerate() {
        let top = number as f64 * LANE;
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>\
             <text x=\"{1:.1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text>",
            top + LANE / 2.0,
            LEFT - 6.0,
            top + LANE / 2.0 + 4.0,
            escape(kind)
        );
        for fault in faults.iter().filter(|fault| fault.kind == kind) {
            let _ = write!(
                svg,
                "<line class=\"mark\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1:.1}\" y2=\"{2:.1}\"><title>{3}</title></line>",
                across.x(fault.at),
                top + 3.0,
                top + LANE - 3.0,
                escape(&fault.what)
            );
        }
    }
    svg.push_str("</svg></div>");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
