from dataclasses import dataclass


@dataclass
class OrderPlaced:
    number: int
    customer: str
