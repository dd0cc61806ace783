# cuda_flags: how a .cu file is compiled. kv_warnings are g++'s and not for nvcc.
find_package(CUDAToolkit 13 REQUIRED)
add_library(cuda_flags INTERFACE)
target_include_directories(cuda_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
# relaxed-constexpr: kernels call numeric's constexpr rounding, so that GPU and CPU share one definition.
# fmad=false, as on the CPU: what a kernel fuses, it says.
target_compile_options(cuda_flags INTERFACE -O3 --expt-relaxed-constexpr -lineinfo --fmad=false
                                            -Werror=all-warnings)
