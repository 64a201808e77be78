"""Means over pages with bootstrap intervals."""

import math

import numpy as np
import pytest

from vclib.rl.intervals import Interval, bootstrap, paired_difference


def test_two_pages_give_the_interval_that_one_can_count():
    # The mean of two resampled pages is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4.
    interval = bootstrap([0.0, 1.0])
    assert (interval.mean, interval.low, interval.high, interval.pages) == (0.5, 0.0, 1.0, 2)


def test_three_pages_give_the_quantiles_of_all_27_resamples():
    values = np.array([0.0, 0.3, 0.9])
    means = [values[[a, b, c]].mean() for a in range(3) for b in range(3) for c in range(3)]
    low, high = np.quantile(means, [0.025, 0.975], method="inverted_cdf")
    interval = bootstrap(values, resamples=50_000)
    assert interval.low == pytest.approx(low) and interval.high == pytest.approx(high)


def test_pairing_takes_out_what_makes_pages_easy_or_hard():
    before = [0.1, 0.5, 0.9, 0.3, 0.7]
    after = [value + 0.05 for value in before]
    gain = paired_difference(after, before)
    assert gain.mean == pytest.approx(0.05)
    assert gain.low == pytest.approx(0.05) and gain.high == pytest.approx(0.05)
    assert gain.verdict == "gain"
    assert bootstrap(after).low < bootstrap(before).high


def test_a_paired_example_by_hand():
    # The differences are +0.2 and -0.1, so the resampled means are -0.1, 0.05 and 0.2.
    gain = paired_difference([0.6, 0.4], [0.4, 0.5])
    assert gain.mean == pytest.approx(0.05)
    assert gain.low == pytest.approx(-0.1) and gain.high == pytest.approx(0.2)
    assert gain.verdict == "unclear"


def test_pages_that_do_not_pair_are_refused():
    with pytest.raises(ValueError):
        paired_difference([0.1, 0.2, 0.3], [0.1, 0.2])


def test_a_loss_is_called_a_loss():
    assert paired_difference([0.1, 0.2], [0.4, 0.4]).verdict == "loss"


def test_one_page_has_a_mean_and_no_interval():
    interval = bootstrap([0.4])
    assert interval.mean == 0.4 and math.isnan(interval.low) and math.isnan(interval.high)
    assert interval.verdict == "unclear"
    assert interval.as_dict() == {"mean": 0.4, "low": None, "high": None, "pages": 1}
    assert str(interval) == "0.400"


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(0).random(30)
    assert bootstrap(values, seed=3) == bootstrap(values, seed=3)
    assert bootstrap(values, seed=3) != bootstrap(values, seed=4)


def test_about_95_of_100_intervals_hold_the_true_mean():
    rng = np.random.default_rng(0)
    intervals = [bootstrap(rng.normal(0.5, 0.2, 60), seed=n, resamples=500) for n in range(400)]
    held = np.mean([interval.low <= 0.5 <= interval.high for interval in intervals])
    assert 0.91 <= held <= 0.98


def test_an_interval_reads_as_one_word():
    assert str(Interval(0.5, 0.25, 0.75, 9)) == "0.500 [0.250, 0.750]"
