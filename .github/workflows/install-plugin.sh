# slime-core comes from where SLIME_CORE says, never by bare name from an index: there its name is another project's.
case "$SLIME_CORE" in
  *.txt) core=(-c "$SLIME_CORE" slime-core) ;; # the slime.txt of a release: an address and a hash for each package
  */* | .) core=("$SLIME_CORE") ;;
  *)
    echo "SLIME_CORE is '$SLIME_CORE'; expected the slime.txt of a release, or by a path such as ./wheels or an address: a folder of its wheels, a wheel, a checkout" >&2
    exit 2
    ;;
esac
if compgen -G "$SLIME_CORE/slime_core-*.whl" >/dev/null; then
  found=$(mktemp -d)/slime.txt
  for wheel in "$SLIME_CORE"/slime_*.whl; do
    name=${wheel##*/}
    echo "${name%%-*} @ $(python -c 'import pathlib, sys; print(pathlib.Path(sys.argv[1]).resolve().as_uri())' "$wheel")"
  done >"$found"
  core=(-c "$found" slime-core)
fi
python -m pip install "${core[@]}" -e "$PACKAGE${EXTRAS:+[$EXTRAS]}"
