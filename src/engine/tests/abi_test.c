// SPDX-License-Identifier: Apache-2.0
// The sizes that the library reports for its public structs are those of these headers.
#include "spillway/abi.h"

#include <stddef.h>

#include "spillway/engine.h"
#include "spillway/train.h"
#include "support/test.h"

static void the_library_knows_its_structs(void **state)
{
    (void)state;
    assert_int_equal(sw_abi_version(), SW_ABI_VERSION);
    assert_int_equal(sw_abi_size("sw_engine_options"), sizeof(struct sw_engine_options));
    assert_int_equal(sw_abi_size("sw_tensor"), sizeof(struct sw_tensor));
    assert_int_equal(sw_abi_size("sw_train_options"), sizeof(struct sw_train_options));
    assert_int_equal(sw_abi_size("sw_engine"), -1); /* an opaque struct has no public size */
    assert_int_equal(sw_abi_size(""), -1);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(the_library_knows_its_structs)};

const struct test_program sw_tests = {TEST_TABLE(tests)};
