# An organisation's own rules, as an example. The gate has already found the required capability when these are asked,
# and the gateway refuses whatever is not exactly allowed here. README.md says how to compile and use them.
package sallyport

# What no rule says anything about, a newer version of the input included, is refused.
default allow := {"allow": false, "reason": "This policy does not know what is asked."}

allow := {"allow": true} if {
	input.version == 1
	count(refusals) == 0
}

allow := {"allow": false, "reason": concat(" ", sort(refusals))} if count(refusals) > 0

# Models. Everybody may call the common ones; any other, whatever it is called, takes a capability that the operator has
# made up. A list of what is allowed, because a model has more than one name: with its provider's prefix, or an alias.
refusals contains "This model takes the capability acme.models.all." if {
	input.action == "egress_llm_chat"
	not model_allowed
}

model_allowed if "acme.models.all" in input.principal.capabilities

model_allowed if input.model in data.acme.common_models

# Tools that take a capability of the operator's own besides the one that the gate asks for.
refusals contains concat("", ["This tool takes the capability ", needed, "."]) if {
	needed := data.acme.tools[input.tool]
	not needed in input.principal.capabilities
}

# Arguments, which a policy sees with `arguments: values`. What is not plainly within the limit is beyond it: a missing
# amount, or one that is no number, must not slip through.
refusals contains "A refund beyond the limit takes the capability acme.refunds.large." if {
	input.tool == "payments.refund"
	not within_limit
	not "acme.refunds.large" in input.principal.capabilities
}

within_limit if {
	is_number(input.arguments.amount)
	input.arguments.amount > 0
	input.arguments.amount <= data.acme.refund_limit
}
