//! Medians, paired ratios and their bootstrap intervals.

/// How often a bootstrap draws.
const DRAWS: usize = 1000;

/// A contender's time over ours, paired run by run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ratio {
    /// Run by run.
    pub(crate) runs: Vec<f64>,
    /// The quartiles p25, p50 and p75.
    pub(crate) quartiles: [f64; 3],
    /// The 95% bootstrap interval of the median.
    pub(crate) interval: [f64; 2],
}

impl Ratio {
    /// The ratio of the times `theirs` over `ours`, run by run. Both hold as many, at least one.
    #[must_use]
    pub(crate) fn paired(theirs: &[f64], ours: &[f64]) -> Self {
        let runs: Vec<f64> = theirs.iter().zip(ours).map(|(t, o)| t / o).collect();
        let sorted = sorted(runs.clone());
        let at = |q: f64| quantile(&sorted, q);
        Ratio { quartiles: [at(0.25), at(0.5), at(0.75)], interval: bootstrap(&runs), runs }
    }
}

/// The geometric mean of `values`; not a number where there are none.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v.ln(), count + 1.0));
    f64::exp(sum / count)
}

/// The 95% bootstrap interval of the geometric mean of the medians of `cases`, whose runs are drawn
/// case by case.
pub(crate) fn mean_interval(cases: &[&[f64]]) -> [f64; 2] {
    interval(|state| mean(cases.iter().map(|values| drawn_median(values, state))))
}

/// The median of `values`; not a number where there are none.
#[must_use]
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values.to_vec()), 0.5)
}

fn bootstrap(values: &[f64]) -> [f64; 2] {
    interval(|state| drawn_median(values, state))
}

/// What 95% of the draws lie in.
fn interval(mut draw: impl FnMut(&mut u64) -> f64) -> [f64; 2] {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let sorted = sorted((0..DRAWS).map(|_| draw(&mut state)).collect());
    [quantile(&sorted, 0.025), quantile(&sorted, 0.975)]
}

/// The median of as many of `values`, drawn with replacement.
fn drawn_median(values: &[f64], state: &mut u64) -> f64 {
    let drawn: Vec<f64> = values.iter().map(|_| values[below(state, values.len())]).collect();
    median(&drawn)
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

    /// Each case's own interval is all of its runs, while few draws have both at the same end.
    #[test]
    fn a_mean_is_drawn_as_a_whole() {
        let runs = [0.5, 1.0, 1.0, 1.0, 2.0];
        let cases = [&runs[..]; 40];
        let [low, high] = mean_interval(&cases);
        let [one_low, one_high] = bootstrap(&runs);
        assert_eq!([one_low, one_high], [0.5, 2.0]);
        assert!(0.8 < low && low < 1.0 && 1.0 < high && high < 1.25, "{low} {high}");
        assert_eq!(mean_interval(&[&[2.0], &[8.0]]).map(f64::round), [4.0; 2]);
        assert!((mean([2.0, 8.0].into_iter()) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn pairing_cancels_what_both_suffer() {
        let ours = [1.0, 10.0, 3.0];
        let theirs = [2.0, 20.0, 6.0];
        assert_eq!(Ratio::paired(&theirs, &ours).quartiles, [2.0; 3]);
    }
}
