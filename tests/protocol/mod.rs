//! The ledger's protocol, checked in every order of events that a model of it allows; and each of its parts taken away, to see
//! that it is needed and that the properties notice.

mod check;
mod model;
mod state;
mod story;

use self::check::*;
use self::model::{Broken, Protocol, Way};
use self::story::{check, counter_example};

const ONE: &[Way] = &[Way::OneStep];
const TWO: &[Way] = &[Way::TwoStep];

fn holds(protocol: Protocol) {
    let report = check(protocol, 2);
    println!("{report}");
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.unreached.is_empty(), "{report}");
}

/// With this part broken, and only then, `property` does not hold; the steps that lead there are printed.
fn is_needed(broken: Broken, ways: &[Way], faults: u8, property: &'static str) {
    let protocol = |broken| Protocol {
        broken,
        ..Protocol::new(2, ways, faults)
    };
    let violation = counter_example(protocol(broken), property);
    let violation = violation.unwrap_or_else(|| panic!("without {broken:?} it still holds: {property}"));
    println!("without {broken:?} this {violation}");
    let report = check(protocol(Broken::Nothing), 1);
    assert!(report.violations.is_empty(), "{report}");
}

#[test]
fn two_replicas_and_two_keys_keep_every_property_whatever_two_things_go_wrong() {
    holds(Protocol::new(2, &[Way::OneStep, Way::TwoStep], 2));
}

#[test]
fn without_the_fence_a_key_has_two_effects() {
    is_needed(Broken::Fence, TWO, 1, ONE_EFFECT);
    is_needed(Broken::Fence, TWO, 1, FENCED);
}

#[test]
fn with_an_attempts_number_for_a_token_two_callers_are_told_a_fresh_result() {
    is_needed(Broken::AttemptNumber, TWO, 1, FRESH_ONCE);
}

#[test]
fn without_reading_the_row_again_after_a_lost_acknowledgement_done_is_told_of_what_is_not() {
    is_needed(Broken::RereadAfterLoss, ONE, 1, TOLD_IS_RECORDED);
    is_needed(Broken::RereadAfterLoss, TWO, 1, TOLD_IS_RECORDED);
}

#[test]
fn without_reading_the_row_after_a_conflict_two_results_are_told() {
    is_needed(Broken::RereadAfterConflict, ONE, 0, SAME_RESULT);
    is_needed(Broken::RereadAfterConflict, TWO, 0, TOLD_IS_RECORDED);
}

#[test]
fn by_a_workers_clock_a_live_claim_is_taken_over() {
    is_needed(Broken::Clock, TWO, 0, LEASE_HOLDS);
}

#[test]
fn without_a_look_after_a_failure_a_caller_is_told_that_nothing_was_done_when_it_was() {
    is_needed(Broken::LookAfterFailure, ONE, 1, NOT_DENIED);
    is_needed(Broken::LookAfterFailure, TWO, 2, NOT_DENIED);
}

#[test]
fn a_flight_without_callers_must_not_run_a_released_request_again() {
    is_needed(Broken::ReclaimForCallers, TWO, 2, ASKED_FOR);
}

/// Waiters that are woken by notifications alone.
fn without_polling(broken: Broken, lossy: bool, faults: u8) -> Protocol {
    Protocol {
        broken,
        lossy,
        polls: false,
        ..Protocol::new(2, TWO, faults)
    }
}

#[test]
fn whoever_registers_before_it_reads_needs_no_poll_while_no_notification_is_lost() {
    holds(without_polling(Broken::Nothing, false, 2));
}

#[test]
fn whoever_reads_before_it_registers_waits_for_ever_without_a_poll() {
    let violation = counter_example(without_polling(Broken::RegisterBeforeRead, false, 0), ENDS);
    println!("{}", violation.expect("a lost wake-up"));
}

#[test]
fn without_a_poll_a_lost_notification_makes_a_waiter_wait_for_ever() {
    let violation = counter_example(without_polling(Broken::Nothing, true, 1), ENDS);
    println!("{}", violation.expect("a lost notification"));
}
