"""A quarter in the life of a bank: add a period, look at the link and at drift, compare methods, release.

Run it in an empty folder: ``python quarterly_update.py``.
"""

import concal
from concal.report.page import write_report

# What a programme brings each quarter; here it is simulated, with a few items that drift.
programme = concal.simulate_programme(
    periods=3, items=90, examinees=600, responses_per_examinee=20, drift_share=0.05, drift_size=0.8, seed=7
)

bank = concal.Bank.create("bank", programme.spec)
for period, responses in programme.responses.items():
    update = bank.add(period, responses, programme.items, reason="quarterly update")
    print(f"{period}: version {update.version}, method {update.consensus.method}")
    for doubt in update.warnings:
        print("  doubt:", doubt)

print(bank.links())

moved = bank.drift()
print(moved.filter(moved["drifted"]).select("item_id", "period", "direction", "score_shift", "q_value"))
print("really drifted:", programme.truth.drift)

# The default method is joint: items, links and population together. The analytic one adds up sums over periods.
joint, analytic = bank.consensus(), bank.consensus("analytic")
for name, group in analytic.groups.items():
    ratio = (joint.groups[name].sd / group.sd).mean(axis=0)
    print(name, "SD joint / analytic", dict(zip(group.model.parameters, ratio.round(3).tolist(), strict=True)))

bank.release("quarter-3", note="approved")
print(write_report(bank, "report.html"))
