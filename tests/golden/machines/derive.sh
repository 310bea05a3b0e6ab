#!/bin/sh
# Derives what the collectors should say of a captured or composed machine, with awk and the shell
# alone, so that expected.json does not come from the code that it judges.
#
#   sh derive.sh MACHINE        prints lines: metric, device (groups without their inode), value
set -eu
root=$(dirname "$0")/$1/root
tab=$(printf '\t')

say() { [ -z "$3" ] || printf '%s\t%s\t%s\n' "$1" "$2" "$3"; }
kb() { awk -v key="$1:" '$1 == key { printf "%.0f", $2 * 1024 }' "$2"; }
key() { [ ! -f "$2" ] || awk -v key="$1" '$1 == key { printf "%s", $2 }' "$2"; }
line() { [ ! -f "$1" ] || tr -d '\n' <"$1"; }
full() { [ ! -f "$1" ] || sed -n 's/^full avg10=\([0-9.]*\).*/\1/p' "$1"; }
sum() { awk 'BEGIN { s = 0; for (i = 1; i < ARGC; i++) s += ARGV[i]; printf "%.0f", s }' "$@"; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 < b + 0) }'; }

mem=$root/proc/meminfo
total=$(kb MemTotal "$mem") available=$(kb MemAvailable "$mem") shmem=$(kb Shmem "$mem")
swap=$(kb SwapTotal "$mem") swap_free=$(kb SwapFree "$mem")
say memory_total_bytes "" "$total"
say memory_available_bytes "" "$available"
say memory_anonymous_bytes "" "$(kb AnonPages "$mem")"
say memory_shared_bytes "" "$shmem"
say memory_slab_unreclaimable_bytes "" "$(kb SUnreclaim "$mem")"
say memory_page_tables_bytes "" "$(kb PageTables "$mem")"
say memory_kernel_stack_bytes "" "$(kb KernelStack "$mem")"
say memory_unreclaimable_bytes "" "$(awk '/^(AnonPages|Shmem|SUnreclaim|PageTables|KernelStack):/ {
    s += $2 } END { printf "%.0f", s * 1024 }' "$mem")"
say memory_file_bytes "" "$(sum "$(kb Cached "$mem")" "$(kb Buffers "$mem")" "-$shmem")"
say memory_swap_used_bytes "" "$(sum "$swap" "-$swap_free")"
say memory_oom_kills_total "" "$(key oom_kill "$root/proc/vmstat")"
say memory_swap_in_pages_total "" "$(key pswpin "$root/proc/vmstat")"
refaults=$(key workingset_refault_file "$root/proc/vmstat")
say memory_refaults_total "" "${refaults:-$(key workingset_refault "$root/proc/vmstat")}"
say memory_pressure_full_percent "" "$(full "$root/proc/pressure/memory")"

# --- groups --------------------------------------------------------------------------------------
groups=$root/sys/fs/cgroup version=2
if [ -d "$groups/memory" ]; then groups=$groups/memory version=1; fi
if [ $version = 2 ] && ! grep -qw memory "$groups/cgroup.controllers"; then groups=""; fi

# The limit that one folder sets, with the swap that it leaves room for; nothing where it sets none.
own_limit() {
    if [ $version = 2 ]; then limit=$(line "$1/memory.max"); else limit=$(line "$1/memory.limit_in_bytes"); fi
    case $limit in '' | max) return ;; esac
    less "$limit" "$total" || return 0
    room=$swap
    if [ "$swap" != 0 ] && [ $version = 1 ]; then
        both=$(line "$1/memory.memsw.limit_in_bytes")
        more=$(sum "$both" "-$limit")
        if less "$more" "$room"; then room=$more; fi
    fi
    sum "$limit" "$room"
}
tightest() {
    best="" at=$1
    while :; do
        one=$(own_limit "$at")
        if [ -n "$one" ] && { [ -z "$best" ] || less "$one" "$best"; }; then best=$one; fi
        if [ "$at" = "$groups" ]; then break; fi
        at=${at%/*}
    done
    printf '%s' "$best"
}
of_group() {
    path=${1#"$groups"} stat=$1/memory.stat
    if [ $version = 2 ]; then
        held=$(awk '$1 == "anon" || $1 == "shmem" || $1 == "kernel" || $1 == "sock" { s += $2 }
            $1 == "slab_reclaimable" { s -= $2 } END { printf "%.0f", s }' "$stat")
        file=$(awk '$1 == "file" { s += $2 } $1 == "shmem" { s -= $2 } END { printf "%.0f", s }' "$stat")
        say container_memory_limit_hits_total "$path" "$(key max "$1/memory.events")"
        say container_memory_oom_kills_total "$path" "$(key oom_kill "$1/memory.events")"
        twin=$1
    else
        # shmem by name, or (older kernels) what the anonymous lists hold beyond the rss
        held_file=$(awk '{ v[$1] = $2 } END {
            if ("total_shmem" in v) s = v["total_shmem"]
            else {
                s = v["total_active_anon"] + v["total_inactive_anon"] - v["total_rss"]
                if (s < 0) s = 0
            }
            printf "%.0f %.0f", v["total_rss"] + s + v["total_swap"], v["total_cache"] - s }' "$stat")
        held=${held_file% *} file=${held_file#* }
        say container_memory_limit_hits_total "$path" "$(line "$1/memory.failcnt")"
        say container_memory_oom_kills_total "$path" "$(key oom_kill "$1/memory.oom_control")"
        twin=$root/sys/fs/cgroup/unified$path
    fi
    say container_memory_unreclaimable_bytes "$path" "$held"
    say container_memory_file_bytes "$path" "$file"
    limit=$(tightest "$1")
    say container_memory_limit_bytes "$path" "${limit:-$(sum "$held" "$available")}"
    say container_memory_pressure_full_percent "$path" "$(full "$twin/memory.pressure")"
    frozen=$(key frozen "$twin/cgroup.events") word=$(line "$root/sys/fs/cgroup/freezer$path/freezer.state")
    case $word in FROZEN) frozen=1 ;; THAWED) frozen=${frozen:-0} ;; esac
    say container_frozen "$path" "$frozen"
}
if [ -n "$groups" ]; then
    find "$groups" -type d | while read -r folder; do
        if [ $version = 2 ]; then used=$(line "$folder/memory.current"); else used=$(line "$folder/memory.usage_in_bytes"); fi
        if [ -z "$used" ] || { [ "$used" = 0 ] && [ ! -s "$folder/cgroup.procs" ]; }; then continue; fi
        if [ "$folder" = "$groups" ] && [ -z "$(own_limit "$folder")" ]; then continue; fi
        of_group "$folder"
    done | awk -F"$tab" -v OFS="$tab" '{ if ($2 == "") $2 = "/"; print }'
fi

# --- processes -----------------------------------------------------------------------------------
for one in "$root"/proc/[0-9]*; do
    [ -f "$one/status" ] || continue
    status=$one/status pid=${one##*/}
    rss=$(kb VmRSS "$status")
    [ -n "$rss" ] || continue
    anon=$(kb RssAnon "$status") data=$(kb VmData "$status")
    private=$(sum "${anon:-$rss}" "$(kb VmSwap "$status")")
    soft=$(awk '/^Max data size/ { print $4 }' "$one/limits")
    device=$(sed 's/^[0-9]* (\(.*\)) .*/\1/' "$one/stat"):$pid:$(sed 's/.*) //' "$one/stat" | cut -d' ' -f20)
    file="" file_kb=$(kb RssFile "$status")
    if [ -n "$file_kb" ]; then file=$(sum "$file_kb" "$(kb RssShmem "$status")"); fi
    if [ "$soft" != unlimited ] && less "$soft" "$(sum "$total" "$swap")"; then
        say process_data_bytes "$device" "$data"
        say process_data_limit_bytes "$device" "$soft"
        say process_file_bytes "$device" "$file"
        continue
    fi
    if less "$private" 16777216; then continue; fi
    if [ -n "$groups" ]; then
        if [ $version = 2 ]; then group=$(sed -n 's/^0:://p' "$one/cgroup"); else group=$(sed -n 's/^[0-9]*:memory://p' "$one/cgroup"); fi
        [ -z "$(tightest "$groups${group%/}")" ] || continue
    fi
    say process_private_bytes "$device" "$private"
    say process_private_limit_bytes "$device" "$(sum "$private" "$available")"
    say process_file_bytes "$device" "$file"
done
