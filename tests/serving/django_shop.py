"""A shop in Django, for servers of either kind, with views of either colour."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings

from tests.django.kit import server_settings, sqlite_settings
from tests.serving.orders import HURRY, OrderPlaced, about, handlers, note_the_end, place

is_sqlite = place.url.startswith("sqlite")
settings.configure(
    DATABASES={"default": sqlite_settings(Path(urlsplit(place.url).path)) if is_sqlite else server_settings(place.url)},
    INSTALLED_APPS=["aftercommit.django"],
    AFTERCOMMIT={"default": {"create_schema": True, **HURRY}},
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="for tests",
    USE_TZ=True,
)

from aftercommit.django.asgi import get_asgi_application  # noqa: E402
from aftercommit.django.wsgi import get_wsgi_application  # noqa: E402

wsgi = get_wsgi_application()
application = get_asgi_application()


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    async def heard() -> Any:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            note_the_end()
        return message

    await application(scope, heard, send)


from django.db import connection, transaction  # noqa: E402
from django.http import HttpRequest, HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402

from aftercommit.django import outbox  # noqa: E402

outbox.include(handlers)


@transaction.atomic
def save(number: int, waits: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO shop_order (number) VALUES (%s)", [number])
    outbox.write(OrderPlaced(number, bool(waits)))


def order(_: HttpRequest, number: int, waits: str = "") -> HttpResponse:
    save(number, waits)
    return HttpResponse(status=201)


async def order_async(_: HttpRequest, number: int, waits: str = "") -> HttpResponse:
    await sync_to_async(save)(number, waits)
    return HttpResponse(status=201)


def tell(request: HttpRequest) -> HttpResponse:
    if "wsgi.version" in request.META:
        atexit.register(note_the_end)  # behind the start of the outbox, so it is called before
    which = None
    if not is_sqlite:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (which,) = cursor.fetchone()
    return JsonResponse(about(outbox, which))


urlpatterns = [
    path("about", tell),
    path("orders/<int:number>", order),
    path("orders/<int:number>/<waits>", order),
    path("async/about", sync_to_async(tell)),
    path("async/orders/<int:number>", order_async),
    path("async/orders/<int:number>/<waits>", order_async),
]
