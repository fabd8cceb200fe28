//! Whose turn it is where contenders are timed one after the other.

use crate::stats::median;

/// How often one runs that is then left out.
pub(crate) const SLOW_RUNS: usize = 3;

/// The order in which `count` contenders run in a round: each round starts one further, and every
/// other one goes backwards, so that nobody always finds what the same one has left in the caches.
pub(crate) fn order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |k| {
        let step = if round.is_multiple_of(2) { k } else { count - k };
        (round + step) % count
    })
}

/// Who is more than `times` as slow as the first.
pub(crate) fn slow(seconds: &[Vec<f64>], times: f64) -> Vec<usize> {
    let of = |k: usize| median(&seconds[k]);
    (1..seconds.len()).filter(|&k| of(k) > times * of(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_runs_once_a_round_and_starts_and_follows_others_in_turn() {
        let rounds: Vec<Vec<usize>> = (0..8).map(|round| order(round, 4).collect()).collect();
        assert_eq!(rounds[..3], [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1]]);
        for (round, order) in rounds.iter().enumerate() {
            let mut all = order.clone();
            all.sort_unstable();
            assert_eq!((all, order[0]), (vec![0, 1, 2, 3], round % 4));
        }
        let all: Vec<usize> = rounds.concat();
        for k in 0..4 {
            let before = all.windows(2).filter(|pair| pair[1] == k).map(|pair| pair[0]);
            let before: std::collections::BTreeSet<usize> = before.collect();
            assert!(before.len() >= 3, "{k} follows {before:?}");
        }
        assert_eq!(order(5, 0).count(), 0);
        assert_eq!(order(5, 1).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn slow_is_by_medians_and_never_the_first() {
        let seconds =
            [vec![1.0, 1.0, 9.0], vec![11.0, 10.5, 1.0], vec![10.0, 10.0, 99.0], vec![0.01; 3]];
        assert_eq!(slow(&seconds, 10.0), [1]);
        assert_eq!(slow(&[vec![99.0; 3], vec![1.0; 3]], 10.0), Vec::<usize>::new());
    }
}
