"""Found by itself, because it is called handlers.py and its app is installed."""

from aftercommit.django import outbox
from shop.events import OrderPlaced


@outbox.handler
def send_receipt(event: OrderPlaced) -> None:
    print(f"receipt for order {event.number} to {event.customer}", flush=True)
