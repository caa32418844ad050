"""Two moons, one label each: the paper's Section 4.2 and Figure 3; and one ambiguous moon."""

from statistics import fmean

from cclp.experiments.descents import ALIGNED_AT, IDEAL, Case, Records, count, spread
from cclp.experiments.folder import Claim

CASES = (
    Case("s10", "moons", noise=0.05),
    Case("s1", "moons", noise=0.05, chain_steps=1),
    Case("s10-noisy", "moons", noise=0.08),
    Case("s1-noisy", "moons", noise=0.08, chain_steps=1),
    Case(
        "ambiguous", "arc", noise=0.03, step_size=0.01, iterations=200,
        frames=(*range(0, 60, 3), *range(60, 201, 10)),
    ),
)  # fmt: skip


def claims(records: Records) -> list[Claim]:
    """What the descents say of the paper's claims and of ours."""
    long, short, long_noisy, short_noisy, ambiguous = (records[case.name] for case in CASES)
    right, right_short, right_noisy, right_short_noisy = (
        count(record["accuracy"] == 1 for record in part)
        for part in (long, short, long_noisy, short_noisy)
    )
    excess = max(record["loss"] / IDEAL - 1 for record in long)
    along = {s: [fmean(record["alignment"][s]) for record in long] for s in ("1", "10")}
    more = count(ten > one for one, ten in zip(along["1"], along["10"], strict=True))
    force, agreement = (
        {part: fmean(r["ambiguity"][of][part] for r in ambiguous) for part in ("open", "decided")}
        for of in ("mean_force", "agreement")
    )
    smaller, mixed = (
        count(r["ambiguity"][of]["open"] < r["ambiguity"][of]["decided"] for r in ambiguous)
        for of in ("mean_force", "agreement")
    )
    return [
        Claim(
            "CCLP with S = 10: linear accuracy 1.00.", f"{right} seeds; {spread(long)}", right.all
        ),
        Claim(
            "At the end its loss is within 2 % of its ideal, ln(N/C) = 4.605.",
            f"{fmean(record['loss'] for record in long):.3f}, at most {100 * excess:.1f} % above",
            excess <= 0.02,
        ),
        Claim(
            "The paper: with long chains forces follow the clusters. Along the moon goes a larger "
            "share of the forces with S = 10 than with S = 1, at the same points.",
            f"{fmean(along['10']):.2f} against {fmean(along['1']):.2f} (without direction: 0.64), "
            f"mean of iterations {', '.join(map(str, ALIGNED_AT))} of the descent with S = 10; "
            f"more in {more} seeds",
            more.all,
        ),
        Claim(
            "The paper: with S = 1 clusters may disintegrate and points be misclassified. S = 1 "
            "reaches 1.00 with fewer seeds.",
            f"{right_short} seeds, S = 10 {right}",
            right_short.found < right.found,
        ),
        Claim(
            "The same with more noise on the moons (0.08).",
            f"S = 1 {right_short_noisy} seeds, S = 10 {right_noisy}; S = 1: {spread(short_noisy)}; "
            f"S = 10: {spread(long_noisy)}",
            right_short_noisy.found < right_noisy.found,
        ),
        Claim(
            "The released repository: where labels are open, forces are smaller.",
            f"mean force {force['open']:.2f} against {force['decided']:.2f} where they are decided"
            f"; smaller in {smaller} seeds",
            smaller.all,
        ),
        Claim(
            "The released repository: where labels are open, directions are mixed.",
            f"directions of ten neighbours agree by {agreement['open']:.2f} against "
            f"{agreement['decided']:.2f} (1: all the same); less in {mixed} seeds",
            mixed.all,
        ),
    ]
