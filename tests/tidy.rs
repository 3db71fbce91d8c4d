//! The laws of the house that a program can check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Most lines in a file.
const LONGEST_FILE: usize = 400;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below a folder, as paths from the root, in order.
fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(root()).expect("below the root");
                found.push(path.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A source's lines that are neither comments nor behind `#[cfg(test)]`, with their numbers.
fn code(source: &str) -> Vec<(usize, &str)> {
    let mut code = Vec::new();
    let mut lines = source.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            // Up to the brace that closes what stands here, at the attribute's own depth.
            let depth = line.len() - line.trim_start().len();
            let closes =
                |line: &str| line.len() - line.trim_start().len() == depth && line.trim_end().ends_with(['}', ';']);
            if !lines.next().is_some_and(|(line, _)| closes(line)) {
                lines.by_ref().find(|(line, _)| closes(line));
            }
        } else if !line.trim_start().starts_with("//") {
            code.push((number, line));
        }
    }
    code
}

/// Where in `src` these words stand in code outside the places that may have them.
fn strays(words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut strays = Vec::new();
    for path in files("src").iter().filter(|path| path.ends_with(".rs")) {
        if allowed.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        let source = read(path);
        for (number, line) in code(&source) {
            if words.iter().any(|word| line.contains(word)) {
                strays.push(format!("{path}:{number}: {}", line.trim()));
            }
        }
    }
    strays
}

fn none(strays: Vec<String>, law: &str) {
    assert!(strays.is_empty(), "{law}\n{}", strays.join("\n"));
}

#[test]
fn sql_stays_with_the_ledger_postgres_and_the_operations() {
    // The load test reads the tables by itself: it shares no code with what it judges. Sabotage breaks statements.
    let strays = strays(
        &["sqlx::"],
        &[
            "src/ledger/",
            "src/postgres/",
            "src/operation/",
            "src/load/",
            "src/sabotage",
        ],
    );
    none(
        strays,
        "sqlx appears only under ledger/, postgres/, operation/ and load/",
    );
}

#[test]
fn protocols_stay_with_the_transports() {
    // tools.rs is a client of any MCP server.
    let strays = strays(&["axum::", "rmcp::"], &["src/transport/", "src/command/tools.rs"]);
    none(strays, "axum and rmcp appear only under transport/");
}

#[test]
fn the_way_down_has_no_circles() {
    let below: [(&str, &[&str]); 5] = [
        (
            "src/postgres/",
            &[
                "crate::ledger",
                "crate::operation",
                "crate::transport",
                "crate::command",
                "crate::config",
            ],
        ),
        (
            "src/ledger/",
            &[
                "crate::operation",
                "crate::transport",
                "crate::command",
                "crate::config",
            ],
        ),
        (
            "src/operation/",
            &["crate::transport", "crate::command", "crate::config"],
        ),
        ("src/transport/", &["crate::command", "crate::postgres"]),
        (
            "src/cluster/",
            &[
                "crate::ledger",
                "crate::operation",
                "crate::transport",
                "crate::command",
                "crate::config",
            ],
        ),
    ];
    for (folder, above) in below {
        let elsewhere: Vec<_> = files("src")
            .into_iter()
            .filter(|path| !path.starts_with(folder))
            .collect();
        let elsewhere: Vec<_> = elsewhere.iter().map(String::as_str).collect();
        none(
            strays(above, &elsewhere),
            &format!("{folder} knows nothing of what lies above it"),
        );
    }
}

#[test]
fn nothing_in_the_program_panics_on_purpose() {
    let words = [
        ".unwrap()",
        ".expect(",
        "panic!(",
        "unreachable!(",
        "todo!(",
        "unimplemented!(",
        "process::exit",
        "dbg!(",
    ];
    // A module of tests in files of its own.
    none(strays(&words, &["src/load/check/tests/"]), "an error is a value");
}

#[test]
fn no_file_is_too_long_to_read() {
    let mut long = Vec::new();
    for path in ["src", "tests", "examples", "migrations", "deploy"]
        .into_iter()
        .flat_map(files)
    {
        let lines = read(&path).lines().count();
        // Dashboards are made by the program that shows them.
        if lines > LONGEST_FILE && !path.ends_with(".json") {
            long.push(format!("{path}: {lines} lines"));
        }
    }
    none(long, "no file has more than 400 lines");
}

#[test]
fn no_statement_is_built_from_strings() {
    // Administration of databases has no parameters; what goes into it is a name of this program's own.
    none(
        strays(&["AssertSqlSafe"], &["src/postgres/"]),
        "no SQL is built from strings",
    );
}

/// The files that a module's declarations lead to.
fn reached(from: &str, reached_files: &mut BTreeSet<String>) {
    if !reached_files.insert(from.to_owned()) {
        return;
    }
    let path = PathBuf::from(from);
    let own = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
    let folder = path.parent().expect("a folder");
    let folder = if ["main", "lib", "mod"].contains(&own) {
        folder.to_owned()
    } else {
        folder.join(own)
    };
    for line in read(from).lines() {
        let line = line.trim();
        let line = line
            .strip_prefix("pub(crate) ")
            .or(line.strip_prefix("pub(super) "))
            .unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let Some(name) = line.strip_prefix("mod ").and_then(|line| line.strip_suffix(';')) else {
            continue;
        };
        let candidates = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
        let found = candidates.iter().find(|path| root().join(path).exists());
        let found = found.unwrap_or_else(|| panic!("{from} declares {name}, which is not there"));
        reached(found.to_str().expect("UTF-8"), reached_files);
    }
}

#[test]
fn no_source_is_dead() {
    let mut seen = BTreeSet::new();
    for start in ["src/main.rs", "src/lib.rs", "tests/main.rs", "tests/sabotaged/main.rs"] {
        reached(start, &mut seen);
    }
    let sources = ["src", "tests"]
        .into_iter()
        .flat_map(files)
        .filter(|path| path.ends_with(".rs"));
    none(
        sources.filter(|path| !seen.contains(path)).collect(),
        "every source is reached from a main.rs or lib.rs",
    );
    // SQL in files of its own is included by the source beside it.
    let sources: String = files("src")
        .iter()
        .filter(|path| path.ends_with(".rs"))
        .map(|path| read(path))
        .collect();
    let sql = files("src").into_iter().filter(|path| path.ends_with(".sql"));
    let unused = sql.filter(|path| !sources.contains(path.rsplit('/').next().expect("a name")));
    none(unused.collect(), "every .sql file is included somewhere");
}

#[test]
fn migrations_are_numbered_without_gaps() {
    for (path, number) in files("migrations").iter().zip(1..) {
        let name = path.strip_prefix("migrations/").expect("below");
        assert!(
            name.starts_with(&format!("{number:04}_")) && name.ends_with(".sql"),
            "{path} is not number {number:04}"
        );
    }
}

/// What may lie in the tree: a folder ends in `/` and may hold files with these ends.
const LISTED: &[(&str, &[&str])] = &[
    (".ci/", &["run"]),
    ("src/", &[".rs", ".sql", ".html"]),
    ("examples/", &[".rs"]),
    (
        "tests/",
        &[
            ".rs",
            "run",
            ".py",
            ".mjs",
            ".json",
            ".txt",
            ".snap",
            ".sql",
            "schemathesis",
        ],
    ),
    ("migrations/", &[".sql"]),
    (
        "deploy/",
        &[
            ".yaml",
            ".conf",
            ".env",
            ".json",
            ".sql",
            ".md",
            "Dockerfile",
            "check",
            "under-kills",
            "monitoring/alerts",
            "delete-pods",
        ],
    ),
    (".gitignore", &[]),
    ("ARCHITECTURE.md", &[]),
    ("Cargo.lock", &[]),
    ("Cargo.toml", &[]),
    (".dockerignore", &[]),
    ("LICENSE-APACHE", &[]),
    ("LICENSE-MIT", &[]),
    ("README.md", &[]),
    ("SECURITY.md", &[]),
    ("clippy.toml", &[]),
    ("deny.toml", &[]),
    ("docker-compose.yml", &[]),
    ("rustfmt.toml", &[]),
];

#[test]
fn nothing_unlisted_lies_in_the_tree() {
    let mut unlisted = Vec::new();
    for entry in fs::read_dir(root()).expect("the root") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        if [".git", "target"].contains(&name.as_str()) {
            continue;
        }
        let folder = entry.path().is_dir();
        let listed = if folder { format!("{name}/") } else { name.clone() };
        let Some((_, ends)) = LISTED.iter().find(|(known, _)| *known == listed) else {
            unlisted.push(listed);
            continue;
        };
        if folder {
            let strange = |path: &String| !ends.iter().any(|end| path.ends_with(end));
            unlisted.extend(files(&name).into_iter().filter(strange));
        }
    }
    none(unlisted, "what lies in the tree is listed in tests/tidy.rs");
}

#[test]
fn the_checker_of_these_laws_sees_code_and_only_code() {
    let source = "use a;\n// .unwrap()\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n    #[cfg(test)]\n    use d;\nfn e() {}\n";
    let seen: Vec<_> = code(source).into_iter().map(|(number, _)| number).collect();
    assert_eq!(seen, [1, 7, 10]);
}
