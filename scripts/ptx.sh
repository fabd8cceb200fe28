#!/usr/bin/env bash
# usage: ptx.sh    lowers the kernels that convert layouts on a device to PTX, with clang and nothing of CUDA's
#
# The text is crates/channel's, which is OpenCL C too, with what it needs of CUDA C in front. A test compares
# the hash that the result begins with.
set -euo pipefail
cd "$(dirname "$0")/.."
text=$(mktemp --suffix=.cu)
trap 'rm -f "$text"' EXIT
items=$(sed -n 's/^pub const GROUP_ITEMS: usize = \([0-9]*\);$/\1/p' crates/channel/src/accelerator/launch.rs)
{
    echo "#define GROUP_ITEMS $items"
    cat crates/channels/cuda/src/prelude.cu crates/channel/src/accelerator/launch/kernels.c
} >"$text"
{
    echo "// By scripts/ptx.sh, of a text whose SHA-256 is $(sha256sum <"$text" | cut -d' ' -f1)."
    "${CLANG:-clang}" -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -O3 -S -o - "$text"
} >crates/channels/cuda/src/kernels.ptx
