//! Processor time, from /proc: on a machine that others use too, what a call costs says more than how long it takes.

use nix::time::{ClockId, clock_gettime};

/// Linux tells processor time in hundredths of a second, whatever its own clock does.
const TICK_US: u64 = 10_000;

/// Of a process, of its children that live, and of those that it has waited for, in microseconds. `None` where there is no
/// /proc.
pub fn of_family(pid: i32) -> Option<u64> {
    let (own, waited, _) = stat(&pid.to_string())?;
    let children: u64 = std::fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| stat(entry.ok()?.file_name().to_str()?))
        .filter(|(_, _, parent)| *parent == pid)
        .map(|(own, waited, _)| own + waited)
        .sum();
    Some((own + waited + children) * TICK_US)
}

/// Of the children that this process has waited for, in microseconds.
pub fn of_the_gone() -> Option<u64> {
    stat("self").map(|(_, waited, _)| waited * TICK_US)
}

/// Of this thread, in microseconds.
pub fn of_thread() -> u64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(|used| (used.tv_sec() * 1_000_000 + used.tv_nsec() / 1_000).unsigned_abs())
        .unwrap_or(0)
}

/// (used, used by children that were waited for, parent), in ticks.
fn stat(pid: &str) -> Option<(u64, u64, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let (_, after) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some((
        number(11)? + number(12)?,
        number(13)? + number(14)?,
        fields.get(1)?.parse().ok()?,
    ))
}
