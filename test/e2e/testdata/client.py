"""A client of grpcio, with messages as bytes: python client.py ADDRESS. It prints one line for each check."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc


def field(number, content):
    return bytes([number << 3 | 2, len(content)]) + content


entry = field(1, b"user") + field(2, b"py")
request = field(1, b"shop") + field(2, field(1, entry))
limit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
channel = grpc.insecure_channel(sys.argv[1])


def call(method, message, compression=None):
    try:
        return channel.unary_unary(method)(message, timeout=20, compression=compression).hex()[:4]
    except grpc.RpcError as error:
        return f"{error.code().value[0]} {error.details()}"


answers = []
with ThreadPoolExecutor(50) as pool:
    for _ in range(10):
        answers += pool.map(lambda _: call(limit, request), range(100))
        time.sleep(0.05)  # connections end for their age meanwhile
print("allowed:", answers.count("0801"), *{answer for answer in answers if answer != "0801"})
print("70 kB:", call(limit, b"\x7a\xf0\xa2\x04" + bytes(70000) + request))
print("compressed:", call(limit, b"\x7a\xe8\x07" + bytes(1000) + request, grpc.Compression.Gzip))
print("malformed:", call(limit, b"\xff"))
print("unknown:", call("/shop.Shop/Buy", request).split(" ")[0])
print("health:", call("/grpc.health.v1.Health/Check", b""))
watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
print("watch:", next(watch).hex())
watch.cancel()
channel.close()
