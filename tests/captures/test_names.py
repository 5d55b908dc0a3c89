"""What a kernel's name says: communication of which family, computing, or a name that nothing explains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anchormatrix.captures import names
from anchormatrix.captures.names import FUSED, LOOKALIKE, SURE, UNKNOWN_FAMILY, UNRECOGNISED, meaning, operator_family
from anchormatrix.captures.naming.mangled import qualified_name

COLLECTIVES = {
    "void ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)": "allGather",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "allReduce",
    "ncclBroadcastRingKernel_copy_i8(ncclColl)": "broadcast",
    "ncclReduceScatterTreeLL128Kernel_sum_f16(ncclWorkElem)": "reduceScatter",
    "ncclSendRecvKernel_copy_i8(ncclColl)": "sendRecv",
    "ncclKernel_AllReduce_TREE_LL_Sum_float(ncclWorkElem)": "allReduce",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "allReduce",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduceScatter",
    "ncclDevKernel_AllGatherV_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "allGatherV",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "broadcast",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "sendRecv",
    "NCCLDEVKERNEL_ALLREDUCE_SUM_F32_RING_LL": "allReduce",
    "_Z37ncclDevKernel_AllGather_RING_LL128_xx24ncclDevKernelArgsStorageILm4096EE": "allGather",
    "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)": "allGather",
    "ncclSymkDevKernel_ReduceScatter_LDMC_sum_bf16(ncclSymkDevWorkArgs4K)": "reduceScatter",
    "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16": "allReduce",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)": "allReduce",
    "_ZN4vllm26cross_device_reduce_1stageI13__nv_bfloat16Li2EEEvPNS_8RankDataE": "allReduce",
    "std::enable_if<(8 > 2), void>::type aiter::cross_device_reduce_2stage_naive<__hip_bfloat16, 8>(int) [clone .kd]": (
        "allReduce"
    ),
    "aiter::reduce_scatter_split_first_dim<x, 8>(aiter::RankData*)": "reduceScatter",
    "void aiter::allgather_lastdim<x, 8>(aiter::RankData*)": "allGather",
    "void sglang::two_shot_all_reduce_kernel<__nv_bfloat16>": "allReduce",
    "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__nv_bfloat16, 8u, true>(int)": "allReduce",
    "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<x>, x>(x const*)": "allReduce",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>(AllReduceParams)": "allReduce",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 2, false>(AllReduceParams)": "allReduce",
    "void flashinfer::mixed_comm::reducescatter_kernel<x>(x)": "reduceScatter",
    "void flashinfer::comm::ulysses_a2a_kernel<x>(x)": "alltoall",
    "multimem_all_reduce_kernel": "allReduce",
    "_ZN12_GLOBAL__N_126multimem_all_reduce_kernelIN3c108BFloat16ELi16EEEvPT_mPPjmm": "allReduce",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*)": "allGather",
    "nvshmem_all_to_all_kernel": "alltoall",
    "void alltoall_on_stream_kernel<float>(int, float*)": "alltoall",
    "void fcollect_on_stream_kernel<float>(int, float*)": "allGather",
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)": "alltoallv",
    "(anonymous namespace)::store_publish_kernel(PushLayout, unsigned char const*, int)": "alltoallv",
    "(anonymous namespace)::wait_combine_kernel(PushLayout, int const*)": "barrier",
    "allreduce7": "allReduce",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs<4>(int)": "reduceScatter",
    "aiv_all_reduce_910b_bfloat16_t": "allReduce",
    "aiv_all_to_all_vc_910b_half": "alltoallvc",
    "sk_allreduce": "allReduce",
    "gloo:all_gather": "allGather",
    "mpi:all_reduce": "allReduce",
    "MPI_Iallreduce": "allReduce",
    "PMPI_Bcast": "broadcast",
    "oneccl_allreduce_small<float>": "allReduce",
}


@pytest.mark.parametrize(("name", "family"), COLLECTIVES.items())
def test_a_known_kernel_says_its_family(name, family):
    assert meaning(name) == (family, SURE)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("allreduce_fusion_kernel_oneshot_lamport<8, __nv_bfloat16>", "allReduce"),
        ("void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, x>(x)", "allReduce"),
        ("void moefinalize_allreduce_fusion_kernel_oneshot_lamport<x>(x)", "allReduce"),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(x)", "alltoallv"),
        ("(anonymous namespace)::combine_publish_kernel(PushLayout, __nv_bfloat16 const*, int const*)", "alltoallv"),
        ("_ZN12_GLOBAL__N_126combine_publish_fp8_kernelEPK13__nv_bfloat16", "alltoallv"),
    ],
)
def test_a_collective_with_computing_inside_is_said_as_such(name, family):
    assert meaning(name) == (family, FUSED)


GENERIC = [
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "rcclGenericKernel<1,false>(ncclDevKernelArgsStorage<4096ul>)",
    "rccl_main_kernel",
    "msccl_kernel",
    "mscclKernel_Sum_half_Simple_true",
    "void mscclpp::executionKernel<mscclpp::LL16Packet, true>(int)",
    "ncclSomethingNew",
    "void nvshmemi_proxy_rma_entrypoint(void*)",
]


@pytest.mark.parametrize("name", GENERIC)
def test_a_generic_kernel_has_its_family_from_the_trace_or_none(name):
    assert meaning(name) == (UNRECOGNISED, UNKNOWN_FAMILY)
    assert meaning(name, "_allgather_base") == ("allGather", SURE)
    assert meaning(name, "", "c10d::allreduce_") == ("allReduce", SURE)
    assert meaning(name, "reduce_scatter", "c10d::allreduce_") == ("reduceScatter", SURE)


def test_an_all_to_all_runs_as_grouped_send_and_receive():
    assert meaning("ncclDevKernel_SendRecv(x)", "", "c10d::alltoall_base_") == ("alltoall", SURE)
    assert meaning("ncclDevKernel_SendRecv(x)", "", "c10d::recv_any_source_") == ("receive", SURE)
    assert meaning("ncclDevKernel_AllGather_RING_LL(x)", "", "c10d::alltoall_base_") == ("allGather", SURE)


ORDINARY = [
    "void at::native::index_elementwise_kernel<128, 4, at::native::all_reduce_functor>(long)",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, x>>(x)",
    "void cub::CUB_200::DeviceReduceSingleTileKernel<x>(x)",
    "cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::collective::CollectiveMma<x>>>(x)",
    "triton_poi_fused_all_gather_into_tensor_wait_tensor_3",
    "triton_red_fused_all_reduce_native_layer_norm_1",
    *("index_gather", "scatter_add", "reduce_kernel", "gather_rows", "broadcast_kernel", "moe_reduce", "sk_reduce"),
    *("softmax_reduce", "ScatterNdUpdate", "GatherV2", "ReduceSum", "BroadcastTo", "send_rows", "barrier_rows"),
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfEEEEvT1_",
    "void vllm::moe::moe_align_block_size_kernel<int>(int*)",
    "void (anonymous namespace)::combine_reduce_kernel<float>(float*, PushLayout, int)",
    "deep_ep::layout::get_dispatch_layout<256, 32, 8>(x)",
    "Memcpy DtoD (Device -> Device)",
]


@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("operator", ["", "c10d::allreduce_", "aten::scatter_reduce"])
def test_an_ordinary_kernel_is_computing_whatever_launched_it(name, operator):
    assert meaning(name, "", operator) == ("", SURE)


@pytest.mark.parametrize("name", ["reduce_scatter_rows_kernel", "my_allReduce<float>(x)", "void x::all_gather_rows(y)"])
def test_a_name_that_only_looks_like_a_collective_is_doubtful_until_an_operator_explains_it(name):
    assert meaning(name) == ("", LOOKALIKE)
    assert meaning(name, "", "aten::scatter_reduce") == ("", LOOKALIKE)
    assert meaning(name, "", "symm_mem::one_shot_all_reduce") == ("allReduce", SURE)


@pytest.mark.parametrize(
    ("operator", "family"),
    [
        ("c10d::_allgather_base_", "allGather"),
        ("c10d::_reduce_scatter_base_", "reduceScatter"),
        ("c10d::reduce_", "reduce"),
        ("c10d::send", "send"),
        ("_c10d_functional::all_to_all_single", "alltoall"),
        ("symm_mem::multimem_all_reduce_", "allReduce"),
        ("nccl:_all_gather_base", "allGather"),
        ("vllm::all_reduce", "allReduce"),
        ("_C_custom_ar::all_reduce", "allReduce"),
        ("aten::scatter_reduce", ""),
        ("mylib::reduce", ""),
        ("record_param_comms", ""),
        ("", ""),
    ],
)
def test_an_operator_names_its_collective(operator, family):
    assert operator_family(operator) == family


@pytest.mark.parametrize(
    ("name", "qualified"),
    [
        ("void a::b<int, c<d>>(e::f<g>)", "a::b"),
        ("a::b<(x > 3)>::c(int) const", "a::b::c"),
        ("_ZN1a1bILi2ENS_1cIiEELb1EEEvPT_", "a::b"),
        ("_ZNK1a1cIiE3runEv", "a::c::run"),
        ("_ZL3runPf", "run"),
        ("_ZSt4moveIiEvv", "std::move"),
        ("_Zxx", "_zxx"),
        ("_ZN99999999999999999999", ""),
        ("void a::b<int, c<d", "a::b"),
        ("", ""),
        ("<<<>>>", ""),
        ("(((", ""),
        ("unsigned int* run(int)", "run"),
        ("run.kd", "run"),
    ],
)
def test_the_qualified_name_of_odd_names(name, qualified):
    assert qualified_name(name) == qualified


def test_every_pattern_has_a_family_and_a_source():
    path = Path(names.__file__).parent / "naming" / "kernel_names.tsv"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert lines[0].split("\t") == ["pattern", "family", "fused", "source"]
    known = {*names._FAMILIES.values(), "operator", "computing", "own"}
    for pattern, family, fused, source in (line.split("\t") for line in lines[1:]):
        re.compile(pattern)
        assert family in known and fused in ("-", "yes") and len(source) > 8, pattern


@pytest.mark.parametrize("part", ["matmul", "a::", "all_gather", "<", "(", "x<", "_", "nccl::a", "_ZN1aI"])
def test_a_name_without_end_is_read_to_a_limit(part):
    assert meaning(part * 20_000 + "!").family == ""


@pytest.mark.parametrize(
    "name", ["AllGatherMatmul_3", "MatmulReduceScatter", "QuantMatmulAllReduce", "AlltoAllAllGatherBatchMatMul"]
)
def test_a_matrix_product_with_a_collective_inside_computes_and_is_said_as_such(name):
    assert meaning(name) == ("", FUSED)


def test_ordinary_matrix_products_are_not_said_to_hold_a_collective():
    assert {meaning(name) for name in ("MatMulV2_5", "grouped_matmul", "BatchMatMul", "matmul_reduce")} == {("", SURE)}
