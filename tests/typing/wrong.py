"""What a user's type checker must refuse: every line marked with an error is one, and no other."""

from __future__ import annotations

import concal

bank = concal.Bank(3)  # error: arg-type
bank.add("Q1", "r.csv")  # error: call-arg
bank.itmes()  # error: attr-defined
print(bank.evaluation().agrement)  # error: attr-defined
print(concal.Spec.read("bank.toml").groups["g"].modle)  # error: attr-defined
concal.combin([])  # error: attr-defined
version: str = bank.version  # error: assignment
concal.calibrate("r.csv", "i.csv", "bank.toml")  # error: arg-type
