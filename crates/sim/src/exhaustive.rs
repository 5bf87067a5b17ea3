//! A small fixed life, with the power cut at every single operation, and for each cut every
//! combination of lost and kept writes and names. And again inside the recovery from it.

use std::sync::Arc;

use dalsegno_log::{Log, Lsn, Options, Rule};

use crate::disk::{Enumerate, LoseAll, SimDisk};
use crate::model::Model;

const DIR: &str = "log";

/// How far the enumeration goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Combinations tried for each cut.
    pub outcomes: u64,
    /// For each of these combinations, up to this many: cut the power again at every operation of
    /// the recovery…
    pub recoveries: u64,
    /// …and try this many combinations there.
    pub outcomes_in_recovery: u64,
}

/// What was covered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage {
    /// Operations at which the power was cut.
    pub cuts: u64,
    /// Combinations that were recovered from.
    pub outcomes: u64,
    /// Cuts with more combinations than the bound allows to try.
    pub cuts_over_bound: u64,
    /// Cuts inside a recovery.
    pub cuts_in_recovery: u64,
    /// Combinations recovered from after these.
    pub outcomes_in_recovery: u64,
    /// Cuts inside a recovery with more combinations than the bound allows to try.
    pub cuts_in_recovery_over_bound: u64,
}

/// Tries everything within the bounds.
///
/// # Errors
/// A promise was broken: says at which operation, in which combination, and how.
pub fn run(bounds: Bounds, rule: Option<Rule>) -> Result<Coverage, String> {
    let mut coverage = Coverage::default();
    for cut in 0.. {
        let disk = SimDisk::new(1);
        disk.crash_at(cut);
        let mut model = Model::new();
        let finished = life(&disk, rule, &mut model)
            .map_err(|e| format!("before the cut at operation {cut}: {e}"))?;
        if finished {
            return Ok(coverage);
        }
        coverage.cuts += 1;
        each_outcome(&disk, bounds, rule, &model, &mut coverage)
            .map_err(|e| format!("power cut at operation {cut}, {e}"))?;
    }
    Ok(coverage)
}

fn each_outcome(
    disk: &SimDisk,
    bounds: Bounds,
    rule: Option<Rule>,
    model: &Model,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let mut choices = Enumerate::new(bounds.outcomes);
    loop {
        let number = choices.seen();
        let machine = disk.snapshot();
        machine.reboot(&mut choices);
        if number < bounds.recoveries {
            cut_in_recovery(&machine, bounds, rule, model, coverage)
                .map_err(|e| format!("combination {number}, {e}"))?;
        }
        recover_and_go_on(&machine, rule, model.clone())
            .map_err(|e| format!("combination {number}: {e}"))?;
        coverage.outcomes += 1;
        if !choices.next_combination() {
            coverage.cuts_over_bound += u64::from(!choices.exhausted());
            return Ok(());
        }
    }
}

/// Cuts the power at every operation of one recovery.
fn cut_in_recovery(
    disk: &SimDisk,
    bounds: Bounds,
    rule: Option<Rule>,
    model: &Model,
    coverage: &mut Coverage,
) -> Result<(), String> {
    for cut in 0.. {
        let machine = disk.snapshot();
        machine.crash_at(machine.ops() + cut);
        let opened = options(&machine, rule).open(DIR);
        if !machine.crashed() {
            return Ok(());
        }
        drop(opened);
        coverage.cuts_in_recovery += 1;
        let mut choices = Enumerate::new(bounds.outcomes_in_recovery);
        loop {
            let again = machine.snapshot();
            again.reboot(&mut choices);
            recover_and_go_on(&again, rule, model.clone())
                .map_err(|e| format!("and again at operation {cut} of the recovery: {e}"))?;
            coverage.outcomes_in_recovery += 1;
            if !choices.next_combination() {
                let over = u64::from(!choices.exhausted());
                coverage.cuts_in_recovery_over_bound += over;
                break;
            }
        }
    }
    Ok(())
}

fn options(disk: &SimDisk, rule: Option<Rule>) -> Options {
    let options = Options::new()
        .segment_bytes(2560)
        .first_segment_bytes(2048)
        .without_threads()
        .fs(Arc::new(disk.clone()));
    match rule {
        Some(rule) => options.break_rule(rule),
        None => options,
    }
}

/// Opens, compares, appends, loses power once more, opens, compares.
fn recover_and_go_on(disk: &SimDisk, rule: Option<Rule>, mut model: Model) -> Result<(), String> {
    let log = open_and_check(disk, rule, &mut model)?;
    append(&log, &mut model, &[40])?;
    wait(&log, &mut model)?;
    disk.reboot(&mut LoseAll);
    drop(log);
    open_and_check(disk, rule, &mut model)?;
    Ok(())
}

fn open_and_check(disk: &SimDisk, rule: Option<Rule>, model: &mut Model) -> Result<Log, String> {
    let log = options(disk, rule).open(DIR).map_err(|e| e.to_string())?;
    let first = log.recovery().first_lsn;
    let mut read = Vec::new();
    let mut reader = log.read_from(first).map_err(|e| e.to_string())?;
    while let Some(record) = reader.next_record().map_err(|e| e.to_string())? {
        read.push((record.lsn, record.payload.to_vec()));
    }
    model.check(first, &read, model.durable)?;
    model.recovered(first, log.recovery().last_lsn);
    Ok(log)
}

/// The life: batches that span sectors, groups of several batches, a seal, a rewrite of the last
/// segment and again when it is not the last, a full segment, a drop, a close, and a second opening. False if the power went before its end.
fn life(disk: &SimDisk, rule: Option<Rule>, model: &mut Model) -> Result<bool, String> {
    let mut steps = || -> Result<(), String> {
        let log = open_and_check(disk, rule, model)?;
        append(&log, model, &[100])?;
        wait(&log, model)?;
        append(&log, model, &[700, 300])?;
        wait(&log, model)?;
        append(&log, model, &[50])?;
        append(&log, model, &[10, 0, 500])?;
        wait(&log, model)?;
        log.seal().map_err(|e| e.to_string())?;
        rewrite_newest_sealed(&log, model, |lsn| lsn % 2 == 0)?;
        append(&log, model, &[900, 10])?;
        wait(&log, model)?;
        rewrite_newest_sealed(&log, model, |lsn| lsn % 3 == 0)?;
        append(&log, model, &[1000])?;
        wait(&log, model)?;
        let first_kept = log.last_lsn() - 1;
        model.may_be_dropped = first_kept;
        log.drop_before(first_kept).map_err(|e| e.to_string())?;
        model.is_dropped = log.first_lsn();
        append(&log, model, &[200])?;
        let last = log.last_lsn();
        log.close().map_err(|e| e.to_string())?;
        model.acknowledged(last)?;
        let log = open_and_check(disk, rule, model)?;
        append(&log, model, &[600])?;
        wait(&log, model)
    };
    match steps() {
        Ok(()) => Ok(true),
        Err(_) if disk.crashed() => Ok(false),
        Err(what) => Err(what),
    }
}

fn rewrite_newest_sealed(
    log: &Log,
    model: &mut Model,
    remove: impl Fn(Lsn) -> bool,
) -> Result<(), String> {
    let segments = log.segments();
    let newest = segments.iter().rfind(|info| info.sealed);
    let newest = newest.ok_or("no segment is sealed")?;
    let lsns = newest.first_lsn..=newest.last_lsn;
    let removed: Vec<Lsn> = lsns.filter(|lsn| remove(*lsn)).collect();
    model.removing(&removed);
    log.rewrite_segment(newest.number, |lsn, _| !remove(lsn))
        .map_err(|e| e.to_string())?;
    model.removed(&removed);
    Ok(())
}

fn append(log: &Log, model: &mut Model, sizes: &[usize]) -> Result<(), String> {
    let last = log.last_lsn();
    let payloads: Vec<Vec<u8>> = sizes
        .iter()
        .enumerate()
        .map(|(i, size)| vec![(last as usize + i + 1) as u8; *size])
        .collect();
    let lsns = log.append_batch(&payloads).map_err(|e| e.to_string())?;
    model.appended(*lsns.start(), payloads)
}

fn wait(log: &Log, model: &mut Model) -> Result<(), String> {
    let lsn: Lsn = log.last_lsn();
    log.wait_durable(lsn).map_err(|e| e.to_string())?;
    model.acknowledged(lsn)
}
