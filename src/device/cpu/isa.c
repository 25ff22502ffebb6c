// SPDX-License-Identifier: Apache-2.0
// The instruction sets that this processor has and the operating system enables: CPUID for the
// instructions, XGETBV for the registers saved at a context switch, arch_prctl for the tiles of
// AMX.
#include "device/cpu/cpu.h"

#include <string.h>

static const char *const isa_names[] = {
    [CPU_PORTABLE] = "portable",       [CPU_AVX2] = "avx2",         [CPU_AVX512] = "avx512",
    [CPU_AVX512_BF16] = "avx512_bf16", [CPU_AMX_BF16] = "amx_bf16",
};

const char *sw_cpu_isa_name(enum cpu_isa isa)
{
    return isa_names[isa];
}

bool sw_cpu_isa_parse(const char *text, enum cpu_isa *out)
{
    for (size_t i = 0; i < SW_LEN(isa_names); i++) {
        if (strcmp(text, isa_names[i]) == 0) {
            *out = (enum cpu_isa)i;
            return true;
        }
    }
    return false;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_AMX = 0x60000 };
#if defined(SPILLWAY_WITHOUT_AVX512)
enum { HAS_AVX512_KERNELS = 0 };
#else
enum { HAS_AVX512_KERNELS = 1 };
#endif
#if defined(SPILLWAY_WITHOUT_AMX)
enum { HAS_AMX_KERNELS = 0 };
#else
enum { HAS_AMX_KERNELS = 1 };
#endif
enum { ARCH_REQUEST_XSTATE = 0x1023, XSTATE_TILE_DATA = 18 };

static bool bit(unsigned word, int i)
{
    return (word >> i) & 1;
}

static uint64_t saved_registers(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Asks the operating system for the tiles of AMX. */
static bool is_granted_amx(uint64_t saved)
{
    return (saved & XCR0_AMX) == XCR0_AMX &&
           syscall(SYS_arch_prctl, ARCH_REQUEST_XSTATE, XSTATE_TILE_DATA) == 0;
}

bool sw_cpu_isa_amx_is_withheld(void)
{
    unsigned a, b, c, d;
    const bool saves = __get_cpuid(1, &a, &b, &c, &d) && bit(c, 27 /* osxsave */);
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && bit(d, 22) && bit(d, 24) &&
           !(saves && is_granted_amx(saved_registers()));
}

enum cpu_isa sw_cpu_isa_detect(bool *amx_bf16)
{
    unsigned a, b, c, d, b7, c7, d7;
    *amx_bf16 = false;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27 /* osxsave */)) {
        return CPU_PORTABLE;
    }
    const uint64_t saved = saved_registers();
    const bool fma_f16c = bit(c, 12) && bit(c, 29);
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !bit(b7, 5 /* avx2 */) || !fma_f16c ||
        (saved & XCR0_AVX) != XCR0_AVX) {
        return CPU_PORTABLE;
    }
    const bool avx512 = bit(b7, 16) && bit(b7, 17) && bit(b7, 30) && bit(b7, 31); /* f dq bw vl */
    if (!HAS_AVX512_KERNELS || !avx512 || (saved & XCR0_AVX512) != XCR0_AVX512) {
        return CPU_AVX2;
    }
    unsigned a71 = 0;
    if (!__get_cpuid_count(7, 1, &a71, &b, &c, &d) || !bit(a71, 5 /* avx512_bf16 */)) {
        return CPU_AVX512;
    }
    *amx_bf16 = bit(d7, 22) && bit(d7, 24) && is_granted_amx(saved);
    return *amx_bf16 && HAS_AMX_KERNELS ? CPU_AMX_BF16 : CPU_AVX512_BF16;
}

bool sw_cpu_isa_fast_vdpbf16(void)
{
    unsigned a, name[3];
    return __get_cpuid(0, &a, &name[0], &name[2], &name[1]) &&
           memcmp(name, "AuthenticAMD", sizeof name) == 0;
}

#else

bool sw_cpu_isa_fast_vdpbf16(void)
{
    return false;
}

bool sw_cpu_isa_amx_is_withheld(void)
{
    return false;
}

enum cpu_isa sw_cpu_isa_detect(bool *amx_bf16)
{
    *amx_bf16 = false;
    return CPU_PORTABLE;
}

#endif
