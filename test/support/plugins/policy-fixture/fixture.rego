# Policies that answer in every way there is. Compiled into fixture.wasm, each rule an entrypoint, with OPA 1.22.0:
#   opa build -t wasm -o bundle.tar.gz fixture.rego \
#     $(grep -o '^[a-z_]* ' fixture.rego | grep -v package | sort -u | sed 's,^,-e fixture/,') \
#     && tar -xzf bundle.tar.gz /policy.wasm && mv policy.wasm fixture.wasm
package fixture

yes := true

no := false

allowing := {"allow": true}

denying := {"allow": false, "reason": "because"}

undefined_rule if input.never

number := 1

text := "true"

empty := null

list := [true]

obliging := {"allow": true, "obligations": ["redact"]}

truthy := {"allow": "true"}

huge := {"allow": false, "reason": concat("", [c | some _ in numbers.range(1, 70000); c := "x"])}

echo := {"allow": false, "reason": json.marshal(input)}

reads_data := data.acme.verdict

holds if "acme.special" in input.principal.capabilities

# Backtracks for longer than anybody lives where the model is a row of a's and then something else.
loops if count(regex.split("^(a|a)*$", input.model)) > 0

# Takes more memory than a policy may have where the model says so.
greedy if input.model == "modest"

greedy if {
	input.model == "greedy"
	count(numbers.range(1, 100000000)) > 0
}
