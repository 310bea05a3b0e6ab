#!/bin/sh
# Prints the signature of each request of this folder, made by OpenSSL from the specification alone:
# HMAC-SHA256 over "ID.TIMESTAMP.BODY" under the key's bytes (here 0 to 31), in base64.
cd "$(dirname "$0")" || exit
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
for body in *.json; do
    of() { sed -n "s/^$1: //p" "${body%.json}.headers"; }
    printf '%s v1,%s\n' "${body%.json}" "$(
        { printf '%s.%s.' "$(of webhook-id)" "$(of webhook-timestamp)"; cat "$body"; } |
            openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64
    )"
done
