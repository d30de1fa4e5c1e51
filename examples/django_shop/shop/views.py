from django.db import transaction
from django.http import JsonResponse
from django.views.decorators.csrf import csrf_exempt

from aioredlock_ng.integrations.django import get_redlock, locked
from shop.models import Seat


# The transaction is inside of the lock: it is committed before the next request begins.
# A second request for the same seat is answered by 423 Locked.
@csrf_exempt
@transaction.non_atomic_requests
@locked("seat:{number}")
def book(request, number):
    lease = get_redlock().current_lease
    with transaction.atomic():
        seat, _ = Seat.objects.get_or_create(number=number)
        if seat.fence:
            return JsonResponse({"sold": True}, status=409)
        seat.fence = lease.fence
        seat.save()
        # Raises LockLost after a loss, and nothing is committed. The client gets 503.
        lease.check()
    return JsonResponse({"seat": number, "fence": lease.fence})
