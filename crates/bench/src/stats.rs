//! Medians, paired ratios and their bootstrap intervals.

/// How often a bootstrap draws.
const DRAWS: usize = 1000;

/// A contender's time over ours, paired run by run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    /// The quartiles p25, p50 and p75.
    pub(crate) quartiles: [f64; 3],
    /// The 95% bootstrap interval of the median.
    pub(crate) interval: [f64; 2],
}

impl Ratio {
    /// The ratio of the times `theirs` over `ours`, run by run. Both hold as many, at least one.
    #[must_use]
    pub(crate) fn paired(theirs: &[f64], ours: &[f64]) -> Self {
        let ratios: Vec<f64> = theirs.iter().zip(ours).map(|(t, o)| t / o).collect();
        let sorted = sorted(ratios.clone());
        let at = |q: f64| quantile(&sorted, q);
        Ratio { quartiles: [at(0.25), at(0.5), at(0.75)], interval: bootstrap(&ratios) }
    }
}

/// The median of `values`; not a number where there are none.
#[must_use]
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values.to_vec()), 0.5)
}

fn bootstrap(values: &[f64]) -> [f64; 2] {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut one = || {
        let drawn: Vec<f64> =
            values.iter().map(|_| values[below(&mut state, values.len())]).collect();
        median(&drawn)
    };
    let sorted = sorted((0..DRAWS).map(|_| one()).collect());
    [quantile(&sorted, 0.025), quantile(&sorted, 0.975)]
}

/// A number below `bound` from a fixed sequence (xorshift64), so that a report is reproducible.
fn below(state: &mut u64, bound: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % bound as u64).expect("below a usize")
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a position among a few thousand runs"
)]
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = q * last as f64;
    let (low, part) = (position.floor() as usize, position.fract());
    sorted[low] + part * (sorted[(low + 1).min(last)] - sorted[low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate() {
        let ratio = Ratio::paired(&[2.0, 4.0, 6.0, 8.0, 10.0], &[2.0; 5]);
        assert_eq!(ratio.quartiles, [2.0, 3.0, 4.0]);
        assert!(ratio.interval[0] >= 1.0 && ratio.interval[1] <= 5.0);
        assert!(ratio.interval[0] <= 3.0 && 3.0 <= ratio.interval[1]);
        assert!(median(&[]).is_nan());
    }

    /// As `scripts/ranks/timing.py` draws them, which has the same test.
    #[test]
    fn intervals_are_drawn_alike_everywhere() {
        let squares: Vec<f64> = (1..=12).map(|i| f64::from(i * i)).collect();
        assert_eq!(Ratio::paired(&squares, &[1.0; 12]).interval, [12.5, 90.5]);
    }

    #[test]
    fn pairing_cancels_what_both_suffer() {
        let ours = [1.0, 10.0, 3.0];
        let theirs = [2.0, 20.0, 6.0];
        assert_eq!(Ratio::paired(&theirs, &ours).quartiles, [2.0; 3]);
    }
}
