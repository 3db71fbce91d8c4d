//! What the README says of this program is what this program does.

use clap::{Args, Command};
use ticket_ledger::config::Config;
use ticket_ledger::operation::answer::Code;

use crate::support::house::registry;

const README: &str = include_str!("../README.md");

/// The rows of a table as their cells, without backquotes, for every line of the README that is one.
fn rows() -> impl Iterator<Item = Vec<String>> {
    README.lines().filter(|line| line.starts_with("| ")).map(|line| {
        let line = line.trim_start_matches("| ").trim_end_matches(" |");
        line.split(" | ").map(|cell| cell.trim().replace('`', "")).collect()
    })
}

fn row(first: &str) -> Vec<String> {
    let mut found = rows().filter(|row| row.first().is_some_and(|cell| cell == first));
    let row = found
        .next()
        .unwrap_or_else(|| panic!("the README has no row for {first}"));
    assert_eq!(found.next(), None, "two rows for {first}");
    row
}

#[test]
fn the_readmes_example_of_an_operation_is_the_one_that_is_compiled_and_run() {
    for (language, source) in [
        ("rust", include_str!("worked_example/add_reaction.rs")),
        ("sql", include_str!("worked_example/reactions.sql")),
    ] {
        let block = format!("```{language}\n{source}```\n");
        assert!(README.contains(&block), "the README's {language} block is another");
    }
}

#[test]
fn the_readmes_table_of_codes_is_the_programs() {
    for code in Code::ALL {
        let row = row(code.as_str());
        let status = row[1].split(' ').next().expect("a status");
        assert_eq!(status, code.http().to_string(), "{row:?}");
        assert!(
            row[2].starts_with(code.was_it_done()),
            "{row:?} does not begin with {:?}",
            code.was_it_done()
        );
    }
    assert_eq!(row("in_progress")[1], "202");
    let table = README.split("| code | HTTP |").nth(1).expect("the table of codes");
    let codes = table.lines().skip(2).take_while(|line| line.starts_with('|')).count();
    assert_eq!(
        codes,
        Code::ALL.len() + 1,
        "a code in the README that the program does not have"
    );
}

#[test]
fn the_readmes_table_of_tools_is_the_programs() {
    for tool in registry().iter() {
        let card = tool.card();
        let hints = card.class.hints();
        let word = |hint: bool| if hint { "yes" } else { "no" };
        let expected = [
            card.name,
            card.class.as_str(),
            word(hints.read_only),
            word(hints.destructive),
            word(hints.idempotent),
            word(hints.open_world),
        ];
        let row = row(card.name);
        assert_eq!(row[..expected.len()], expected);
        let route = format!("{} {}", card.route.method, card.route.path);
        assert_eq!(row.last().map(String::as_str), Some(route.as_str()));
    }
}

#[test]
fn the_readmes_table_of_settings_has_every_knob_with_its_default() {
    let command = Config::augment_args(Command::new("serve"));
    for knob in command.get_arguments() {
        let name = knob
            .get_env()
            .expect("every knob has a variable")
            .to_string_lossy()
            .into_owned();
        let flag = name.to_lowercase().replace('_', "-");
        assert_eq!(
            knob.get_long(),
            Some(flag.as_str()),
            "the README says that flags are named like variables"
        );
        let row = row(&name);
        let defaults: Vec<_> = knob
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        if let Some(default) = defaults.first() {
            assert_eq!(row[1], *default, "{row:?}");
        }
    }
}
