package sallyport_test

import data.sallyport

chat(capabilities, model) := {
	"version": 1,
	"principal": {"id": "acme::bot", "type": "agent", "capabilities": capabilities},
	"action": "egress_llm_chat",
	"model": model,
	"tool": null,
	"arguments": null,
}

refund(capabilities, arguments) := {
	"version": 1,
	"principal": {"id": "acme::bot", "type": "agent", "capabilities": capabilities},
	"action": "mcp_tools_call",
	"model": null,
	"tool": "payments.refund",
	"arguments": arguments,
}

test_a_common_model_is_for_everybody if {
	sallyport.allow == {"allow": true} with input as chat(["llm.chat"], "gpt-4o-mini")
}

test_another_takes_the_capability if {
	sallyport.allow.allow == false with input as chat(["llm.chat"], "gpt-5.5")
	sallyport.allow.allow == true with input as chat(["llm.chat", "acme.models.all"], "gpt-5.5")
}

test_a_refund_takes_its_capability if {
	sallyport.allow.allow == true with input as refund(["acme.refunds"], {"amount": 100})
	sallyport.allow.allow == false with input as refund([], {"amount": 100})
}

test_a_refund_is_bounded if {
	every amount in [101, 0, -1, "100", null, true, [1]] {
		sallyport.allow.allow == false with input as refund(["acme.refunds"], {"amount": amount})
		sallyport.allow.allow == true with input as refund(["acme.refunds", "acme.refunds.large"], {"amount": amount})
	}
}

test_arguments_that_are_not_shown_are_beyond_it if {
	sallyport.allow.allow == false with input as refund(["acme.refunds"], null)
}

test_another_version_is_refused if {
	sallyport.allow.allow == false with input as object.union(chat([], "gpt-4o-mini"), {"version": 2})
}
