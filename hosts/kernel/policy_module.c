// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module around a policy: it registers the policy's functions with baton.ko. Compiled once for
 * each policy, with BATON_POLICY_NAME defined. A policy in Rust defines BATON_POLICY_OPS by the
 * macro baton_glue::export!, a policy in C by BATON_POLICY of events.h, or itself.
 */
#include <linux/module.h>

#include "baton.h"
#include "host.h"
#include "register.h"

extern const struct baton_policy BATON_POLICY_OPS;

/* For events.h. */
DEFINE_PER_CPU(void *, baton_call_word);
void __weak baton_prepare(void);

static int __init policy_init(void)
{
	if (baton_prepare)
		baton_prepare();
	return baton_register(&BATON_POLICY_OPS, THIS_MODULE);
}

static void __exit policy_exit(void)
{
	baton_unregister(&BATON_POLICY_OPS, THIS_MODULE);
}

module_init(policy_init);
module_exit(policy_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Baton scheduling policy " BATON_POLICY_NAME);
