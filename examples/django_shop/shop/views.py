from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from aftercommit.django import outbox
from shop.events import OrderPlaced
from shop.models import Order


@transaction.atomic
def save_order(number: int, customer: str) -> None:
    """The order and its event are saved together, or neither is."""
    outbox.write(OrderPlaced(number, customer), key=number)
    Order.objects.create(number=number, customer=customer)


def place_order(request: HttpRequest) -> HttpResponse:
    save_order(int(request.POST["number"]), request.POST["customer"])
    return HttpResponse(status=201)


async def place_order_async(request: HttpRequest) -> HttpResponse:
    """Django's transactions are for sync code, so the whole block goes to a thread."""
    await sync_to_async(save_order)(int(request.POST["number"]), request.POST["customer"])
    return HttpResponse(status=201)
