"""Derives keys as the module docs of `propagation` say: reads a JSON list of cases, writes one key a line."""

import hashlib, hmac, json, struct, sys, uuid

DOMAIN = "idempotency derived key v1"

def number(n):
    return struct.pack(">Q", n)

def text(s):
    return number(len(s.encode())) + s.encode()

def texts(items):
    return number(len(items)) + b"".join(map(text, items))

for case in json.load(sys.stdin.buffer):
    principal = [] if case["principal"] is None else [case["principal"]]
    message = text(DOMAIN) + text(case["scope"]) + texts(principal) + text(case["key"])
    message += texts(case["operation"]) + texts(case["discriminators"]) + number(case["nth"])
    secret = case["secret"] or DOMAIN
    digest = bytearray(hmac.new(secret.encode(), message, hashlib.sha256).digest()[:16])
    digest[6] = digest[6] & 0x0F | case["version"] << 4
    digest[8] = digest[8] & 0x3F | 0x80
    print(uuid.UUID(bytes=bytes(digest)))
