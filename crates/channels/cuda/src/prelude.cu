/* What the kernels need of CUDA C, by builtins of clang's: no header of CUDA's is there. In front of this
 * stands GROUP_ITEMS. */

#define KERNEL                                                                \
    extern "C" __attribute__((global)) __attribute__((launch_bounds(GROUP_ITEMS))) void
#define GLOBAL
#define LOCAL __attribute__((shared))
#define GROUP ((u32)__nvvm_read_ptx_sreg_ctaid_x())
#define ITEM ((u32)__nvvm_read_ptx_sreg_tid_x())
#define BARRIER __syncthreads()
#define UNROLL _Pragma("unroll")

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef u32 u128 __attribute__((ext_vector_type(4)));
